/* fuzz_dialogue.c - any bytes as a line of JSON to learn from: refused, or a text, or a complete
 * conversation. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dialogue.h"
#include "train/data_conversation.h"

static void require_same(const dialogue *a, const dialogue *b)
{
    require(a->n_messages == b->n_messages && a->is_plain == b->is_plain);
    require(a->n_chosen == b->n_chosen);
    for (size_t i = 0; i < a->n_messages; i++) {
        const dialogue_message *x = &a->messages[i], *y = &b->messages[i];
        require(x->length == y->length && x->is_answer == y->is_answer);
        require(!strcmp(x->role, y->role) && !memcmp(x->text, y->text, x->length + 1));
    }
}

static void look(const dialogue_line *line)
{
    const dialogue *c = &line->conversation;
    size_t length = 0;
    if (line->text) {
        require(strlen(line->text) == line->length && c->n_messages == 0);
        return;
    }
    for (size_t i = 0; i < c->n_messages; i++) {
        const dialogue_message *m = &c->messages[i];
        require(strlen(m->text) == m->length);
        require(!strcmp(m->role, "system") || !strcmp(m->role, "user") ||
                !strcmp(m->role, "assistant"));
        require(!m->is_answer || (m->length > 0 && !strcmp(m->role, "assistant")));
        length += m->length;
    }
    require(length == line->length);
    require(c->n_chosen == 0 || c->n_chosen < c->n_messages);
    require(!c->is_plain || c->n_messages == (c->n_chosen ? 4 : 2));
    dialogue *copy = data_conversation_copy(c);
    require(copy != NULL);
    require_same(c, copy);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    json_node *node;
    dsmoe_error error = {0};
    if (json_node_parse((const char *)bytes, size, "fuzz", &node, NULL) != DSMOE_OK) return 0;
    dialogue_line line;
    dsmoe_status status = dialogue_read(node, &line, &error);
    if (status == DSMOE_OK)
        look(&line);
    else
        require_error(status, &error);
    dialogue_free(&line.conversation);
    json_node_free(node);
    return 0;
}

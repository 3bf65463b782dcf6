/* conversation.c - the messages of a chat. */
#include "cli/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "formats/json_write.h"

bool conversation_add(conversation *c, const char *role, const char *text, size_t length)
{
    if (c->count == c->capacity) {
        size_t capacity = 2 * c->capacity + 16;
        dsmoe_message *larger = realloc(c->messages, capacity * sizeof *larger);
        if (!larger) return false;
        c->messages = larger;
        c->capacity = capacity;
    }
    char *content = malloc(length + 1);
    if (!content) return false;
    size_t n = 0;
    for (size_t i = 0; i < length; i++)
        if (text[i]) content[n++] = text[i];
    content[n] = '\0';
    c->messages[c->count++] = (dsmoe_message){role, content};
    return true;
}

/* Forgets messages [from, to). */
static void remove_messages(conversation *c, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) free((char *)c->messages[i].content);
    for (size_t i = to; i < c->count; i++) c->messages[from + i - to] = c->messages[i];
    c->count -= to - from;
}

/* Index of the first turn, after a system message if there is one. */
static size_t first_turn(const conversation *c)
{
    return c->count > 0 && !strcmp(c->messages[0].role, "system");
}

void conversation_drop_last(conversation *c) { remove_messages(c, c->count - 1, c->count); }

char *conversation_take_answer(conversation *c)
{
    if (c->count < first_turn(c) + 2) return NULL;
    return (char *)c->messages[--c->count].content;
}

bool conversation_undo(conversation *c)
{
    if (c->count < first_turn(c) + 2) return false;
    remove_messages(c, c->count - 2, c->count);
    return true;
}

bool conversation_drop_turn(conversation *c)
{
    size_t first = first_turn(c);
    if (first + 2 >= c->count) return false;
    remove_messages(c, first, first + 2);
    return true;
}

void conversation_reset(conversation *c) { remove_messages(c, first_turn(c), c->count); }

void conversation_print(const conversation *c, FILE *file)
{
    fputs("[", file);
    for (size_t i = 0; i < c->count; i++) {
        fputs(i ? ",\n  {\"role\": " : "\n  {\"role\": ", file);
        json_write_string(file, c->messages[i].role);
        fputs(", \"content\": ", file);
        json_write_string(file, c->messages[i].content);
        fputs("}", file);
    }
    fputs("\n]\n", file);
}

void conversation_free(conversation *c)
{
    remove_messages(c, 0, c->count);
    free(c->messages);
    *c = (conversation){0};
}

/* dialogue.c - a line of JSON as a conversation. */
#include "formats/dialogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static dsmoe_status no_memory(dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a conversation");
}

void dialogue_free(dialogue *c)
{
    for (size_t i = 0; i < c->n_joined; i++) free(c->joined[i]);
    free(c->joined);
    free(c->messages);
    *c = (dialogue){0};
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct string {
    const char *text; /* NULL: none */
    size_t length;
} string;

/* A member of an object; NULL if it is missing or null. */
static const json_node *member(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    return node && json_node_kind(node) == JSON_KIND_NULL ? NULL : node;
}

static dsmoe_status wrong_kind(const char *key, const char *wanted, const json_node *node,
                               dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" must be %s, not %s", key, wanted,
                       json_kind_name(json_node_kind(node)));
}

/* Reads a member that must be a string if it is there. */
static dsmoe_status read_string(const json_node *object, const char *key, string *s,
                                dsmoe_error *error)
{
    const json_node *node = member(object, key);
    *s = (string){0};
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_STRING) return wrong_kind(key, "a string", node, error);
    s->text = json_node_string(node, &s->length);
    return DSMOE_OK;
}

/* Reads the list of a key that is known to be there. */
static dsmoe_status read_list(const json_node *object, const char *key, const json_node **list,
                              dsmoe_error *error)
{
    *list = member(object, key);
    if (*list && json_node_kind(*list) == JSON_KIND_ARRAY) return DSMOE_OK;
    if (*list) return wrong_kind(key, "a list", *list, error);
    return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" is null", key);
}

/* ---- messages ------------------------------------------------------------------------------ */

typedef struct builder {
    dialogue *c;
    size_t capacity;
} builder;

static dsmoe_status add(builder *b, const char *role, string s, bool is_answer, dsmoe_error *error)
{
    dialogue *c = b->c;
    if (c->n_messages == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 8, size;
        dialogue_message *messages =
            checked_mul_size(capacity, sizeof *messages, &size) ? realloc(c->messages, size) : NULL;
        if (!messages) return no_memory(error);
        c->messages = messages;
        b->capacity = capacity;
    }
    c->messages[c->n_messages++] = (dialogue_message){role, s.text, s.length, is_answer};
    return DSMOE_OK;
}

/* Questions and empty answers are never learned. */
static dsmoe_status add_user(builder *b, string s, dsmoe_error *error)
{
    return add(b, "user", s, false, error);
}

static dsmoe_status add_answer(builder *b, string s, dsmoe_error *error)
{
    return add(b, "assistant", s, s.length > 0, error);
}

/* Adds the "system" message of a line, if there is one. */
static dsmoe_status add_system(builder *b, const json_node *line, dsmoe_error *error)
{
    string s;
    STATUS_TRY(read_string(line, "system", &s, error));
    return s.length > 0 ? add(b, "system", s, false, error) : DSMOE_OK;
}

/* The keys and the names of roles in a form. */
typedef struct message_form {
    const char *role, *text; /* keys */
    struct {
        const char *name, *role;
    } names[5];
    const char *expected; /* for messages */
} message_form;

static const message_form openai = {
    "role",
    "content",
    {{"system", "system"}, {"user", "user"}, {"assistant", "assistant"}},
    "system, user or assistant",
};
static const message_form sharegpt = {
    "from",
    "value",
    {{"system", "system"},
     {"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"}},
    "system, human or gpt",
};

/* "mask" of a message: 1 if it must not be learned. */
static dsmoe_status read_mask(const json_node *node, bool *masked, dsmoe_error *error)
{
    const json_node *mask = member(node, "mask");
    *masked = false;
    if (!mask) return DSMOE_OK;
    json_kind kind = json_node_kind(mask);
    if (kind == JSON_KIND_BOOL) {
        *masked = json_node_bool(mask);
        return DSMOE_OK;
    }
    if (kind != JSON_KIND_INTEGER || json_node_integer(mask) < 0 || json_node_integer(mask) > 1)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"mask\" must be 0 or 1");
    *masked = json_node_integer(mask) == 1;
    return DSMOE_OK;
}

static dsmoe_status read_message(builder *b, const json_node *node, const message_form *form,
                                 bool learns, dsmoe_error *error)
{
    string role, text;
    bool masked;
    if (json_node_kind(node) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "must be an object, not %s",
                           json_kind_name(json_node_kind(node)));
    STATUS_TRY(read_string(node, form->role, &role, error));
    STATUS_TRY(read_string(node, form->text, &text, error));
    if (!role.text || !text.text)
        return status_fail(error, DSMOE_ERROR_FORMAT, "it has no \"%s\"",
                           role.text ? form->text : form->role);
    STATUS_TRY(read_mask(node, &masked, error));
    for (size_t i = 0; i < sizeof form->names / sizeof *form->names && form->names[i].name; i++) {
        if (strcmp(form->names[i].name, role.text)) continue;
        const char *own = form->names[i].role;
        bool is_answer = learns && !masked && text.length > 0 && !strcmp(own, "assistant");
        return add(b, own, text, is_answer, error);
    }
    return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" is \"%.64s\", not %s", form->role,
                       role.text, form->expected);
}

/* Reads a list of messages. With `learns` false (a prompt) none of them is learned. */
static dsmoe_status read_messages(builder *b, const json_node *line, const char *key,
                                  const message_form *form, bool learns, dsmoe_error *error)
{
    const json_node *list;
    STATUS_TRY(read_list(line, key, &list, error));
    for (size_t i = 0; i < json_node_count(list); i++) {
        dsmoe_error why;
        dsmoe_status status = read_message(b, json_node_item(list, i), form, learns, &why);
        if (status != DSMOE_OK)
            return status_fail(error, status, "message %zu of \"%s\": %s", i + 1, key, why.message);
    }
    return DSMOE_OK;
}

/* ---- instructions -------------------------------------------------------------------------- */

/* Joins instruction and input with a line end between them. */
static dsmoe_status join(dialogue *c, string a, string b, string *both, dsmoe_error *error)
{
    size_t length;
    char **joined = realloc(c->joined, (c->n_joined + 1) * sizeof *joined);
    if (!joined) return no_memory(error);
    c->joined = joined;
    if (!checked_add_size(a.length, b.length, &length) || length > SIZE_MAX - 2)
        return no_memory(error);
    char *text = malloc(length + 2);
    if (!text) return no_memory(error);
    c->joined[c->n_joined++] = text;
    memcpy(text, a.text, a.length);
    text[a.length] = '\n';
    memcpy(text + a.length + 1, b.text, b.length + 1); /* its NUL too */
    *both = (string){text, length + 1};
    return DSMOE_OK;
}

/* Reads the earlier pairs of question and answer. */
static dsmoe_status read_history(builder *b, const json_node *line, dsmoe_error *error)
{
    const json_node *list;
    if (!member(line, "history")) return DSMOE_OK;
    STATUS_TRY(read_list(line, "history", &list, error));
    for (size_t i = 0; i < json_node_count(list); i++) {
        const json_node *pair = json_node_item(list, i);
        string said[2];
        bool is_pair = json_node_kind(pair) == JSON_KIND_ARRAY && json_node_count(pair) == 2;
        for (size_t j = 0; is_pair && j < 2; j++) {
            const json_node *item = json_node_item(pair, j);
            is_pair = json_node_kind(item) == JSON_KIND_STRING;
            if (is_pair) said[j].text = json_node_string(item, &said[j].length);
        }
        if (!is_pair)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "entry %zu of \"history\" must be a pair of strings", i + 1);
        STATUS_TRY(add_user(b, said[0], error));
        STATUS_TRY(add_answer(b, said[1], error));
    }
    return DSMOE_OK;
}

static dsmoe_status read_instruction(builder *b, const json_node *line, dsmoe_error *error)
{
    string instruction, input, output;
    STATUS_TRY(read_string(line, "instruction", &instruction, error));
    STATUS_TRY(read_string(line, "input", &input, error));
    STATUS_TRY(read_string(line, "output", &output, error));
    if (!instruction.text || !output.text)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" is null",
                           instruction.text ? "output" : "instruction");
    STATUS_TRY(add_system(b, line, error));
    STATUS_TRY(read_history(b, line, error));
    if (input.length > 0) STATUS_TRY(join(b->c, instruction, input, &instruction, error));
    STATUS_TRY(add_user(b, instruction, error));
    return add_answer(b, output, error);
}

/* ---- the other forms ------------------------------------------------------------------------ */

static dsmoe_status read_list_form(builder *b, const json_node *line, dsmoe_error *error)
{
    return read_messages(b, line, "messages", &openai, true, error);
}

static dsmoe_status read_sharegpt(builder *b, const json_node *line, dsmoe_error *error)
{
    STATUS_TRY(add_system(b, line, error));
    return read_messages(b, line, "conversations", &sharegpt, true, error);
}

/* Two strings are plain texts; two lists are messages. */
static dsmoe_status read_prompt(builder *b, const json_node *line, dsmoe_error *error)
{
    const json_node *prompt = member(line, "prompt"), *completion = member(line, "completion");
    if (prompt && completion && json_node_kind(prompt) == JSON_KIND_ARRAY &&
        json_node_kind(completion) == JSON_KIND_ARRAY) {
        STATUS_TRY(read_messages(b, line, "prompt", &openai, false, error));
        return read_messages(b, line, "completion", &openai, true, error);
    }
    if (!prompt || !completion || json_node_kind(prompt) != JSON_KIND_STRING ||
        json_node_kind(completion) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "\"prompt\" and \"completion\" must both be strings or both be lists of "
                           "messages");
    string texts[2];
    STATUS_TRY(read_string(line, "prompt", &texts[0], error));
    STATUS_TRY(read_string(line, "completion", &texts[1], error));
    b->c->is_plain = true;
    STATUS_TRY(add_user(b, texts[0], error));
    return add_answer(b, texts[1], error);
}

/* ---- preferences ---------------------------------------------------------------------------- */

static const char *const sides[] = {"chosen", "rejected"};

static bool are_both(const json_node *const nodes[2], json_kind kind)
{
    return json_node_kind(nodes[0]) == kind && json_node_kind(nodes[1]) == kind;
}

/* Reads two answers to the same prompt, as plain texts. */
static dsmoe_status read_plain_pair(builder *b, const json_node *line, dsmoe_error *error)
{
    string prompt, answer;
    STATUS_TRY(read_string(line, "prompt", &prompt, error));
    if (!prompt.text)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "\"chosen\" and \"rejected\" are strings, and there is no \"prompt\"");
    b->c->is_plain = true;
    for (int i = 0; i < 2; i++) {
        STATUS_TRY(read_string(line, sides[i], &answer, error));
        STATUS_TRY(add_user(b, prompt, error));
        STATUS_TRY(add_answer(b, answer, error));
        if (i == 0) b->c->n_chosen = b->c->n_messages;
    }
    return DSMOE_OK;
}

/* Marks the messages that both begin with as not to be learned. Returns their number. */
static size_t mark_common(dialogue *c)
{
    dialogue_message *chosen = c->messages, *rejected = c->messages + c->n_chosen;
    size_t n = 0, n_rejected = c->n_messages - c->n_chosen;
    for (; n < c->n_chosen && n < n_rejected; n++) {
        const dialogue_message *x = &chosen[n], *y = &rejected[n];
        if (strcmp(x->role, y->role) || strcmp(x->text, y->text)) break;
        chosen[n].is_answer = rejected[n].is_answer = false;
    }
    return n;
}

static dsmoe_status read_pair_of_lists(builder *b, const json_node *line, dsmoe_error *error)
{
    const json_node *prompt = member(line, "prompt");
    bool has_list = prompt && json_node_kind(prompt) == JSON_KIND_ARRAY;
    for (int i = 0; i < 2; i++) {
        if (has_list) STATUS_TRY(read_messages(b, line, "prompt", &openai, false, error));
        STATUS_TRY(read_messages(b, line, sides[i], &openai, true, error));
        if (i == 0) b->c->n_chosen = b->c->n_messages;
    }
    if (b->c->n_chosen == 0 || b->c->n_chosen == b->c->n_messages)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" is empty",
                           sides[b->c->n_chosen == 0 ? 0 : 1]);
    if (has_list || mark_common(b->c) > 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "\"chosen\" and \"rejected\" have no beginning in common: give what comes "
                       "before them as \"prompt\", a list of messages");
}

static dsmoe_status read_preference(builder *b, const json_node *line, dsmoe_error *error)
{
    const json_node *both[2] = {member(line, sides[0]), member(line, sides[1])};
    if (both[0] && both[1] && are_both(both, JSON_KIND_STRING))
        return read_plain_pair(b, line, error);
    if (both[0] && both[1] && are_both(both, JSON_KIND_ARRAY))
        return read_pair_of_lists(b, line, error);
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "\"chosen\" and \"rejected\" must both be strings or both be lists of "
                       "messages");
}

/* ---- the form of a line -------------------------------------------------------------------- */

static const struct form {
    const char *keys[2];                                                         /* required */
    dsmoe_status (*read)(builder *b, const json_node *line, dsmoe_error *error); /* NULL: a text */
} forms[] = {
    {{"text"}, NULL},
    {{"prompt", "completion"}, read_prompt},
    {{"messages"}, read_list_form},
    {{"conversations"}, read_sharegpt},
    {{"instruction", "output"}, read_instruction},
    {{"chosen", "rejected"}, read_preference},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static bool has_keys(const json_node *line, const struct form *form)
{
    return json_node_member(line, form->keys[0]) &&
           (!form->keys[1] || json_node_member(line, form->keys[1]));
}

static dsmoe_status find_form(const json_node *line, const struct form **found, dsmoe_error *error)
{
    *found = NULL;
    for (int i = 0; i < N_FORMS; i++) {
        if (!has_keys(line, &forms[i])) continue;
        if (*found)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "\"%s\" and \"%s\" in one line: remove the one that must not be "
                               "learned",
                               (*found)->keys[0], forms[i].keys[0]);
        *found = &forms[i];
    }
    if (*found) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "it has none of \"text\", \"messages\", \"conversations\", \"prompt\" and "
                       "\"completion\", \"instruction\" and \"output\", \"chosen\" and "
                       "\"rejected\"");
}

dsmoe_status dialogue_read(const json_node *node, dialogue_line *line, dsmoe_error *error)
{
    const struct form *form;
    *line = (dialogue_line){0};
    if (json_node_kind(node) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "must be an object, not %s",
                           json_kind_name(json_node_kind(node)));
    STATUS_TRY(find_form(node, &form, error));
    if (!form->read) {
        string text;
        STATUS_TRY(read_string(node, "text", &text, error));
        if (!text.text)
            return wrong_kind("text", "a string", json_node_member(node, "text"), error);
        line->text = text.text;
        line->length = text.length;
        return DSMOE_OK;
    }
    builder b = {.c = &line->conversation};
    STATUS_TRY(form->read(&b, node, error));
    for (size_t i = 0; i < line->conversation.n_messages; i++)
        if (!checked_add_size(line->length, line->conversation.messages[i].length, &line->length))
            return no_memory(error);
    return DSMOE_OK;
}

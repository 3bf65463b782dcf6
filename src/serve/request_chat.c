/* request_chat.c - a conversation becomes the ids of a prompt.
 *
 * Messages are checked and measured first, so that one allocation holds all their contents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request_parts.h"

enum { PLACE = 64 }; /* bytes of a name such as messages[4095].content[12].type */

/* ---- roles ----------------------------------------------------------------------------------- */

typedef struct chat_role {
    const char *name, *frame; /* frame is NULL: not supported here */
} chat_role;

static const chat_role roles[] = {{"system", "system"}, {"developer", "system"},
                                  {"user", "user"},     {"assistant", "assistant"},
                                  {"tool", NULL},       {"function", NULL}};

static const chat_role *find_role(const json_node *message)
{
    const json_node *node = request_member(message, "role");
    for (size_t i = 0; node && i < sizeof roles / sizeof *roles; i++)
        if (request_is_string(node, roles[i].name)) return &roles[i];
    return NULL;
}

static bool check_role(const request_reader *q, const char *place, const json_node *message,
                       const chat_role *role)
{
    static const char must[] = "system, developer, user or assistant";
    char name[PLACE], value[REQUEST_VALUE_TEXT];
    snprintf(name, sizeof name, "%s.role", place);
    const json_node *node = request_member(message, "role");
    if (!node)
        return request_refuse(q->error, 400, name, "%s is missing; it must be %s", name, must);
    if (!role) return request_refuse_value(q, name, node, must);
    if (!role->frame)
        return request_refuse(q->error, 501, name,
                              "%s is %s, which is not supported: the model calls no tools", name,
                              request_describe(node, value));
    if (!strcmp(role->frame, "assistant") &&
        dsmoe_chat_form_end(q->limits->tokenizer, q->limits->chat_form) < 0)
        return request_refuse(q->error, 501, name,
                              "%s is %s, but the tokenizer has no token to end an answer with",
                              name, request_describe(node, value));
    return true;
}

/* ---- contents -------------------------------------------------------------------------------- */

static bool is_foreign_part(const json_node *type)
{
    static const char *const names[] = {"image_url", "input_image", "input_audio",
                                        "audio_url", "video_url",   "file"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (request_is_string(type, names[i])) return true;
    return false;
}

/* The text of {"type": "text", "text": …}; NULL if it was refused. */
static const json_node *part_text(const request_reader *q, const char *place, const json_node *part)
{
    char value[REQUEST_VALUE_TEXT];
    bool is_object = json_node_kind(part) == JSON_KIND_OBJECT;
    const json_node *type = is_object ? request_member(part, "type") : NULL;
    const json_node *text = is_object ? request_member(part, "text") : NULL;
    if (type && is_foreign_part(type))
        request_refuse(q->error, 501, place,
                       "%s has the type %s, which is not supported: the model reads text only",
                       place, request_describe(type, value));
    else if (!type || !request_is_string(type, "text") || !text ||
             json_node_kind(text) != JSON_KIND_STRING)
        request_refuse_value(q, place, part, "{\"type\": \"text\", \"text\": \"…\"}");
    else
        return text;
    return NULL;
}

static bool measure_parts(const request_reader *q, const char *name, const json_node *parts,
                          size_t *n_bytes)
{
    for (size_t i = 0; i < json_node_count(parts); i++) {
        char place[PLACE + 24];
        size_t length;
        snprintf(place, sizeof place, "%s[%zu]", name, i);
        const json_node *text = part_text(q, place, json_node_item(parts, i));
        if (!text) return false;
        json_node_string(text, &length);
        *n_bytes += length; /* all texts are in memory, so their sum cannot wrap */
    }
    return true;
}

static bool measure_content(const request_reader *q, const char *place, const json_node *message,
                            const chat_role *role, size_t *n_bytes)
{
    char name[PLACE];
    snprintf(name, sizeof name, "%s.content", place);
    const json_node *content = request_member(message, "content");
    size_t length;
    if (!content)
        return !strcmp(role->frame, "assistant") ||
               request_refuse(q->error, 400, name,
                              "%s is missing; it must be a string or an array of parts", name);
    switch (json_node_kind(content)) {
    case JSON_KIND_STRING:
        json_node_string(content, &length);
        *n_bytes += length;
        return true;
    case JSON_KIND_ARRAY: return measure_parts(q, name, content, n_bytes);
    default: return request_refuse_value(q, name, content, "a string or an array of parts");
    }
}

/* Ignoring an answer's tool calls would show the model a different conversation, so they are refused. */
static bool check_tool_calls(const request_reader *q, const char *place, const json_node *message)
{
    const json_node *calls = request_member(message, "tool_calls");
    bool none = !calls || (json_node_kind(calls) == JSON_KIND_ARRAY && json_node_count(calls) == 0);
    if (none && !request_member(message, "function_call")) return true;
    return request_refuse(q->error, 501, place,
                          "%s calls a tool, which is not supported: the model calls no tools",
                          place);
}

/* Adds the size of the message's content and its NUL to *n_bytes. */
static bool measure_message(const request_reader *q, size_t index, const json_node *message,
                            size_t *n_bytes)
{
    char place[32];
    snprintf(place, sizeof place, "messages[%zu]", index);
    if (json_node_kind(message) != JSON_KIND_OBJECT)
        return request_refuse_value(q, place, message, "an object");
    const chat_role *role = find_role(message);
    ++*n_bytes;
    return check_role(q, place, message, role) && check_tool_calls(q, place, message) &&
           measure_content(q, place, message, role, n_bytes);
}

/* ---- from messages to ids -------------------------------------------------------------------- */

static char *put_text(char *at, const json_node *string)
{
    size_t length;
    const char *text = json_node_string(string, &length);
    memcpy(at, text, length);
    return at + length;
}

/* Parts are joined without a separator. */
static char *put_content(char *at, const json_node *content)
{
    if (content && json_node_kind(content) == JSON_KIND_STRING) {
        at = put_text(at, content);
    } else if (content) {
        for (size_t i = 0; i < json_node_count(content); i++)
            at = put_text(at, request_member(json_node_item(content, i), "text"));
    }
    *at++ = '\0';
    return at;
}

static bool encode(request_reader *q, const json_node *list, dsmoe_message *messages, char *text)
{
    size_t count = json_node_count(list), n_ids;
    for (size_t i = 0; i < count; i++) {
        const json_node *message = json_node_item(list, i);
        messages[i] = (dsmoe_message){find_role(message)->frame, text};
        text = put_content(text, request_member(message, "content"));
    }
    int32_t *ids;
    dsmoe_status status = dsmoe_chat_encode(q->limits->tokenizer, q->limits->chat_form, messages,
                                            count, true, &ids, &n_ids, NULL);
    if (status != DSMOE_OK) return request_refuse_text(q, "messages", status);
    return request_keep_prompt(q, "messages", ids, n_ids, &q->r->prompts[0]);
}

static bool measure_messages(const request_reader *q, const json_node *list, size_t *n_bytes)
{
    size_t count = json_node_count(list);
    if (count < 1 || count > REQUEST_MAX_MESSAGES)
        return request_refuse(q->error, 400, "messages",
                              "messages is an array of %zu; it must have 1 to %d", count,
                              REQUEST_MAX_MESSAGES);
    if (!request_check_text(q, "messages", 0)) return false;
    for (size_t i = 0; i < count; i++)
        if (!measure_message(q, i, json_node_item(list, i), n_bytes)) return false;
    return request_check_text(q, "messages", *n_bytes);
}

bool request_read_messages(request_reader *q)
{
    const json_node *list = request_member(q->root, "messages");
    if (!list)
        return request_refuse(q->error, 400, "messages",
                              "messages is missing; it must be an array");
    if (json_node_kind(list) != JSON_KIND_ARRAY)
        return request_refuse_value(q, "messages", list, "an array");
    size_t n_bytes = 0;
    if (!measure_messages(q, list, &n_bytes) || !request_make_prompts(q, "messages", 1))
        return false;
    dsmoe_message *messages = calloc(json_node_count(list), sizeof *messages);
    char *text = malloc(n_bytes);
    bool good = messages && text ? encode(q, list, messages, text) : request_refuse_memory(q);
    free(messages);
    free(text);
    return good;
}

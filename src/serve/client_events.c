/* client_events.c - reads server-sent events as chunks, and chunks as the text, end and cost of an answer. */
#include "serve/client_events.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "formats/json.h"

/* ---- JSON of any shape ------------------------------------------------------------------------- */

static const json_node *member(const json_node *node, const char *key, json_kind kind)
{
    if (!node || json_node_kind(node) != JSON_KIND_OBJECT) return NULL;
    const json_node *value = json_node_member(node, key);
    return value && json_node_kind(value) == kind ? value : NULL;
}

static const json_node *first_item(const json_node *array)
{
    return array && json_node_count(array) > 0 ? json_node_item(array, 0) : NULL;
}

static const char *text_of(const json_node *node, const char *key, size_t *length)
{
    const json_node *value = member(node, key, JSON_KIND_STRING);
    return value ? json_node_string(value, length) : NULL;
}

/* Reads a number that is at least 0; false if there is none. */
static bool read_number(const json_node *node, const char *key, double *number)
{
    const json_node *value = member(node, key, JSON_KIND_REAL);
    if (!value) value = member(node, key, JSON_KIND_INTEGER);
    if (!value || !(json_node_number(value) >= 0)) return false;
    *number = json_node_number(value);
    return true;
}

/* Counts are added up later, so an impossibly large one is ignored. */
static void read_count(const json_node *node, const char *key, int64_t *count)
{
    const int64_t most = (int64_t)1 << 40;
    const json_node *value = member(node, key, JSON_KIND_INTEGER);
    if (value && json_node_integer(value) >= 0 && json_node_integer(value) <= most)
        *count = json_node_integer(value);
}

/* The JSON reader refuses NULs, and shown text does not need them: they become U+FFFD, which is as long. */
static void replace_nuls(char *json, size_t length)
{
    static const char nul[] = "\\u0000", instead[] = "\\ufffd";
    const size_t n = sizeof nul - 1;
    for (size_t i = 0; i + n <= length; i++) {
        if (json[i] != '\\') continue;
        if (!memcmp(json + i, nul, n)) memcpy(json + i, instead, n);
        i++; /* skip the escaped character */
    }
}

/* ---- a chunk ----------------------------------------------------------------------------------- */

static void read_cost(const json_node *chunk, client_cost *cost)
{
    const json_node *usage = member(chunk, "usage", JSON_KIND_OBJECT);
    const json_node *timings = member(chunk, "timings", JSON_KIND_OBJECT);
    double ms;
    read_count(usage, "prompt_tokens", &cost->n_prompt);
    read_count(usage, "completion_tokens", &cost->n_predicted);
    read_count(member(usage, "prompt_tokens_details", JSON_KIND_OBJECT), "cached_tokens",
               &cost->n_cached);
    if (read_number(timings, "prompt_ms", &ms)) cost->prompt_seconds = ms / 1000;
    if (read_number(timings, "predicted_ms", &ms)) cost->predicted_seconds = ms / 1000;
}

/* The message of an error, which is an object with a message, or the message itself. */
static const char *error_message(const json_node *node)
{
    size_t length;
    const char *message = text_of(member(node, "error", JSON_KIND_OBJECT), "message", &length);
    return message ? message : text_of(node, "error", &length);
}

static void read_choice(client_events *e, const json_node *choice)
{
    size_t length = 0;
    const char *text = text_of(member(choice, "delta", JSON_KIND_OBJECT), "content", &length);
    if (!text) text = text_of(choice, "text", &length);
    if (text && length > 0) {
        e->n_texts++;
        if (!e->show(e->context, text, length)) e->is_stopped = true;
    }
    const char *reason = text_of(choice, "finish_reason", &length);
    if (reason) e->finish = strcmp(reason, "length") ? CLIENT_FINISH_STOP : CLIENT_FINISH_LENGTH;
}

static dsmoe_status read_chunk(client_events *e, dsmoe_error *error)
{
    json_node *chunk;
    dsmoe_error why;
    replace_nuls(e->data.bytes, e->data.length);
    if (json_node_parse_wide(e->data.bytes, e->data.length, "it", &chunk, &why))
        return status_fail(error, why.status, "an event of the answer is not JSON (%s)",
                           why.message);
    dsmoe_status status = DSMOE_OK;
    const json_node *choices = member(chunk, "choices", JSON_KIND_ARRAY);
    const char *message = error_message(chunk);
    if (message || member(chunk, "error", JSON_KIND_OBJECT)) {
        status = status_fail(error, DSMOE_ERROR_IO, "the answer broke off: %.400s",
                             message ? message : "the server does not say why");
    } else if (!choices) {
        status = status_fail(error, DSMOE_ERROR_FORMAT, "an event of the answer has no choices");
    } else {
        read_cost(chunk, &e->cost);
        read_choice(e, first_item(choices));
    }
    json_node_free(chunk);
    return status;
}

/* ---- events ------------------------------------------------------------------------------------ */

static dsmoe_status append(byte_buffer *buffer, const char *bytes, size_t length, const char *what,
                           dsmoe_error *error)
{
    if (length > CLIENT_LONGEST_EVENT - buffer->length)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s of the answer has more than %d MB", what,
                           CLIENT_LONGEST_EVENT >> 20);
    return byte_buffer_append(buffer, bytes, length, error);
}

/* An empty line ends an event. */
static dsmoe_status end_event(client_events *e, dsmoe_error *error)
{
    static const char done[] = "[DONE]";
    const byte_buffer *data = &e->data;
    dsmoe_status status = DSMOE_OK;
    if (data->length == 0) return status;
    e->is_done = data->length == sizeof done - 1 && !memcmp(data->bytes, done, data->length);
    if (!e->is_done) status = read_chunk(e, error);
    e->data.length = 0;
    return status;
}

/* Comments, and fields other than data, are ignored. */
static dsmoe_status end_line(client_events *e, dsmoe_error *error)
{
    static const char mark[] = "\xef\xbb\xbf", field[] = "data:";
    const char *line = e->line.bytes;
    size_t length = e->line.length, n = sizeof field - 1;
    e->line.length = 0;
    if (e->n_lines++ == 0 && length >= 3 && !memcmp(line, mark, 3)) {
        line += 3;
        length -= 3;
    }
    if (length == 0) return end_event(e, error);
    if (length < n || memcmp(line, field, n) != 0) return DSMOE_OK;
    if (length > n && line[n] == ' ') n++;
    if (e->data.length > 0) STATUS_TRY(append(&e->data, "\n", 1, "an event", error));
    return append(&e->data, line + n, length - n, "an event", error);
}

void client_events_begin(client_events *e) { e->cost = (client_cost){-1, -1, -1, -1, -1}; }

/* Lines end with LF, CR LF or CR. */
dsmoe_status client_events_put(client_events *e, const char *bytes, size_t length,
                               dsmoe_error *error)
{
    for (size_t at = 0; at < length && !e->is_done && !e->is_stopped; at++) {
        if (e->after_return && bytes[at] == '\n') {
            e->after_return = false;
            continue;
        }
        size_t n = 0;
        while (at + n < length && bytes[at + n] != '\n' && bytes[at + n] != '\r') n++;
        STATUS_TRY(append(&e->line, bytes + at, n, "a line", error));
        at += n;
        e->after_return = at < length && bytes[at] == '\r';
        if (at < length) STATUS_TRY(end_line(e, error));
    }
    return DSMOE_OK;
}

void client_events_free(client_events *e)
{
    byte_buffer_free(&e->line);
    byte_buffer_free(&e->data);
}

/* ---- answers that are a single JSON object ------------------------------------------------------- */

/* Servers word this differently, but all of them mention the context, and tokens or a length. */
static bool speaks_of_context(const json_node *body, const char *message)
{
    size_t length;
    const json_node *error = member(body, "error", JSON_KIND_OBJECT);
    const char *code = text_of(error, "code", &length), *type = text_of(error, "type", &length);
    if (code && strcasestr(code, "context")) return true;
    if (type && strcasestr(type, "context")) return true;
    return message && strcasestr(message, "context") &&
           (strcasestr(message, "token") || strcasestr(message, "length"));
}

void client_read_refusal(const char *body, size_t length, client_refusal *refusal)
{
    json_node *node;
    *refusal = (client_refusal){0};
    if (json_node_parse_wide(body, length, "", &node, NULL)) return;
    const char *message = error_message(node);
    if (message) snprintf(refusal->message, sizeof refusal->message, "%s", message);
    refusal->is_about_context = speaks_of_context(node, message);
    json_node_free(node);
}

char *client_read_model(const char *body, size_t length)
{
    json_node *node;
    size_t n;
    if (json_node_parse_wide(body, length, "", &node, NULL)) return NULL;
    const char *name = text_of(first_item(member(node, "data", JSON_KIND_ARRAY)), "id", &n);
    char *copy = name ? strdup(name) : NULL;
    json_node_free(node);
    return copy;
}

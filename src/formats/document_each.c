/* document_each.c - the documents of one file, in their order. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/document_text.h"
#include "formats/documents.h"
#include "formats/json.h"
#include "formats/mapped_file.h"
#include "formats/token_shard.h"

/* ---- a line of JSON ------------------------------------------------------------------------ */

/* A member that must be a string if it is there; NULL and 0 if it is not. */
static dsmoe_status member_string(const json_node *line, const char *key, const char **text,
                                  size_t *length, dsmoe_error *error)
{
    const json_node *member = json_node_member(line, key);
    *text = NULL;
    *length = 0;
    if (!member) return DSMOE_OK;
    if (json_node_kind(member) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" must be a string, not %s", key,
                           json_kind_name(json_node_kind(member)));
    *text = json_node_string(member, length);
    return DSMOE_OK;
}

typedef struct string_part {
    const char *text;
    size_t length;
} string_part;

static dsmoe_status visit_joined(const string_part *parts, size_t n_parts, document_visit_fn *visit,
                                 void *context, dsmoe_error *error)
{
    size_t length = 0, at = 0;
    for (size_t i = 0; i < n_parts; i++)
        if (!checked_add_size(length, parts[i].length, &length) || length == SIZE_MAX)
            return status_fail(error, DSMOE_ERROR_MEMORY, "the text does not fit into memory");
    char *text = malloc(length + 1);
    if (!text)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a text of %zu bytes",
                           length);
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].length > 0) memcpy(text + at, parts[i].text, parts[i].length);
        at += parts[i].length;
    }
    document joined = {.text = text, .length = length};
    dsmoe_status status = visit(context, &joined, error);
    free(text);
    return status;
}

/* Question and answer as the chat models have them. */
static dsmoe_status visit_instruction(const json_node *line, document_visit_fn *visit,
                                      void *context, dsmoe_error *error)
{
    string_part instruction, input, output;
    STATUS_TRY(member_string(line, "instruction", &instruction.text, &instruction.length, error));
    STATUS_TRY(member_string(line, "input", &input.text, &input.length, error));
    STATUS_TRY(member_string(line, "output", &output.text, &output.length, error));
    if (!instruction.text || !output.text)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "neither \"text\" nor \"instruction\" and \"output\" in it");
    if (output.length == 0) return DSMOE_OK; /* nothing to learn */
    const string_part user = {"User: ", 6}, gap = {"\n\n", 2}, assistant = {"Assistant: ", 11};
    string_part parts[7];
    size_t n = 0;
    parts[n++] = user;
    parts[n++] = instruction;
    if (input.length > 0) {
        parts[n++] = gap;
        parts[n++] = input;
    }
    parts[n++] = gap;
    parts[n++] = assistant;
    parts[n++] = output;
    return visit_joined(parts, n, visit, context, error);
}

static dsmoe_status visit_line(const json_node *line, document_visit_fn *visit, void *context,
                               dsmoe_error *error)
{
    if (json_node_kind(line) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "must be an object, not %s",
                           json_kind_name(json_node_kind(line)));
    document whole = {0};
    STATUS_TRY(member_string(line, "text", &whole.text, &whole.length, error));
    if (!whole.text) return visit_instruction(line, visit, context, error);
    return whole.length > 0 ? visit(context, &whole, error) : DSMOE_OK;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* What a visitor reports is its own; what is wrong with the line gets the line's number. */
typedef struct line_visit {
    document_visit_fn *visit;
    void *context;
    bool visitor_failed;
} line_visit;

static dsmoe_status pass_on(void *context, const document *text, dsmoe_error *error)
{
    line_visit *v = context;
    dsmoe_status status = v->visit(v->context, text, error);
    v->visitor_failed = status != DSMOE_OK;
    return status;
}

/* The parser knows of one line only, so it calls each "line 1". */
static const char *without_line(char *message)
{
    static const char one[] = "line 1, ";
    char *at = strstr(message, one);
    if (at) memmove(at, at + sizeof one - 1, strlen(at + sizeof one - 1) + 1);
    return !strncmp(message, ": ", 2) ? message + 2 : message;
}

static dsmoe_status read_line(const char *line, size_t length, const char *path, size_t number,
                              line_visit *v, dsmoe_error *error)
{
    dsmoe_error reason;
    json_node *node;
    dsmoe_status status = json_node_parse(line, length, "", &node, &reason);
    if (status != DSMOE_OK)
        return status_fail(error, status, "%s: line %zu: %s", path, number,
                           without_line(reason.message));
    status = visit_line(node, pass_on, v, &reason);
    json_node_free(node);
    if (status == DSMOE_OK) return DSMOE_OK;
    if (v->visitor_failed) return status_fail(error, status, "%s", reason.message);
    return status_fail(error, status, "%s: line %zu: %s", path, number, reason.message);
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* The same for a line that may have bad bytes, which are replaced. */
static dsmoe_status read_bad_line(const char *line, size_t length, const char *path, size_t number,
                                  line_visit *v, dsmoe_error *error)
{
    size_t n_bad = document_bad_bytes(line, length);
    if (n_bad == 0) return read_line(line, length, path, number, v, error);
    char *made = document_replace_bad(line, length, n_bad, &length);
    if (!made) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    dsmoe_status status = read_line(made, length, path, number, v, error);
    free(made);
    return status;
}

static dsmoe_status each_line(const document_source *source, const char *text, size_t length,
                              document_visit_fn *visit, void *context, dsmoe_error *error)
{
    const char *path = source->path;
    line_visit v = {.visit = visit, .context = context};
    size_t number = 1;
    for (size_t at = 0; at < length; number++) {
        const char *line = text + at, *end = memchr(line, '\n', length - at);
        size_t n = end ? (size_t)(end - line) : length - at;
        if (!is_blank(line, n))
            STATUS_TRY(
                (source->replace ? read_bad_line : read_line)(line, n, path, number, &v, error));
        at += n + 1;
    }
    return DSMOE_OK;
}

/* ---- a file -------------------------------------------------------------------------------- */

static dsmoe_status visit_shard(const void *bytes, size_t size, const char *path,
                                document_visit_fn *visit, void *context, dsmoe_error *error)
{
    token_shard shard;
    STATUS_TRY(token_shard_parse(bytes, size, path, &shard, error));
    if (shard.n_tokens == 0) return DSMOE_OK;
    document tokens = {
        .tokens = shard.tokens, .n_tokens = shard.n_tokens, .token_size = shard.token_size};
    return visit(context, &tokens, error);
}

static dsmoe_status visit_text(const document_source *source, const char *text, size_t length,
                               document_visit_fn *visit, void *context, dsmoe_error *error)
{
    char *made = NULL;
    if (source->replace) {
        made = document_replace_bad(text, length, document_bad_bytes(text, length), &length);
        if (!made) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source->path);
    }
    document whole = {.text = made ? made : text, .length = length};
    dsmoe_status status = length > 0 ? visit(context, &whole, error) : DSMOE_OK;
    free(made);
    return status;
}

dsmoe_status document_each_in(const document_source *source, const void *bytes, size_t size,
                              document_visit_fn *visit, void *context, dsmoe_error *error)
{
    if (source->form == DOCUMENT_SHARD)
        return visit_shard(bytes, size, source->path, visit, context, error);
    const char *text = bytes;
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        text += 3;
        size -= 3;
    }
    if (source->form == DOCUMENT_JSONL) return each_line(source, text, size, visit, context, error);
    return visit_text(source, text, size, visit, context, error);
}

dsmoe_status document_each(const document_source *source, document_visit_fn *visit, void *context,
                           dsmoe_error *error)
{
    mapped_file file;
    STATUS_TRY(mapped_file_open(&file, source->path, error));
    dsmoe_status status =
        file.size == source->size
            ? document_each_in(source, file.bytes, file.size, visit, context, error)
            : status_fail(
                  error, DSMOE_ERROR_IO,
                  "%s: the file had %zu bytes and now has %zu; try again when nobody writes "
                  "to it",
                  source->path, source->size, file.size);
    /* Bytes that are gone read as zeros: what is wrong with them is not the news. */
    if (!mapped_file_intact(&file)) status = mapped_file_lost(source->path, error);
    mapped_file_close(&file);
    return status;
}

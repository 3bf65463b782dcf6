/* document_each.c - visits the documents of one file in order. */
#include <stdlib.h>
#include <string.h>

#include "formats/dialogue.h"
#include "formats/document_text.h"
#include "formats/documents.h"
#include "formats/json.h"
#include "formats/mapped_file.h"
#include "formats/token_shard.h"

/* ---- lines --------------------------------------------------------------------------------- */

static dsmoe_status visit_line(const json_node *node, size_t number, document_visit_fn *visit,
                               void *context, dsmoe_error *error)
{
    dialogue_line line;
    dsmoe_status status = dialogue_read(node, &line, error);
    document d = {.text = line.text, .length = line.length, .line = number};
    if (!line.text) d.conversation = &line.conversation;
    if (status == DSMOE_OK && (line.length > 0 || d.conversation))
        status = visit(context, &d, error);
    dialogue_free(&line.conversation);
    return status;
}

/* Tells the visitor's errors, which are passed on as they are, from errors in the line, which get the
 * line's number. */
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

static dsmoe_status read_line(const char *line, size_t length, const char *path, size_t number,
                              line_visit *v, dsmoe_error *error)
{
    dsmoe_error reason;
    json_node *node;
    dsmoe_status status = json_line_parse(line, length, false, &node, &reason);
    if (status != DSMOE_OK)
        return status_fail(error, status, "%s: line %zu: %s", path, number, reason.message);
    status = visit_line(node, number, pass_on, v, &reason);
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

/* read_line() for a line that may have bad bytes, which are replaced. */
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
                  "%s: the file had %zu bytes and now has %zu; try again when no other program "
                  "writes to it",
                  source->path, source->size, file.size);
    /* Lost pages read as zeros: report the loss, not what is wrong with the zeros. */
    if (!mapped_file_intact(&file)) status = mapped_file_lost(source->path, error);
    mapped_file_close(&file);
    return status;
}

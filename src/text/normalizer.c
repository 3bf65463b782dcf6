/* normalizer.c - changes a text before it is cut into pieces. */
#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/fields.h"
#include "text/unicode.h"

enum {
    MAX_STEPS = 64,
    /* Compatibility forms turn a byte into eleven at most; a chain of Replace can make billions. */
    MAX_GROWTH = 32,
    MAX_EXTRA = 4096,
};

typedef dsmoe_status step_fn(const normalizer_step *step, regex_scratch *scratch, const char *text,
                             size_t length, byte_buffer *out, dsmoe_error *error);

struct normalizer_step {
    step_fn *apply;
    unicode_form form;            /* of the Unicode forms */
    bool strip_left, strip_right; /* of Strip */
    pattern pattern;              /* of Replace */
    byte_buffer content;          /* of Replace and Prepend */
};

/* ---- the steps: from one valid text to another ---------------------------------------------- */

static dsmoe_status apply_form(const normalizer_step *step, regex_scratch *scratch,
                               const char *text, size_t length, byte_buffer *out,
                               dsmoe_error *error)
{
    (void)scratch;
    return unicode_normalize(step->form, text, length, out, error);
}

static dsmoe_status apply_lowercase(const normalizer_step *step, regex_scratch *scratch,
                                    const char *text, size_t length, byte_buffer *out,
                                    dsmoe_error *error)
{
    (void)step;
    (void)scratch;
    for (size_t at = 0; at < length;) {
        uint32_t code = 0, lower[2];
        at += utf8_decode(text + at, length - at, &code);
        int n = unicode_lower(code, lower);
        for (int i = 0; i < n; i++) {
            char bytes[4];
            size_t width = unicode_encode(lower[i], bytes);
            STATUS_TRY(byte_buffer_append(out, bytes, width, error));
        }
    }
    return DSMOE_OK;
}

static dsmoe_status apply_strip_accents(const normalizer_step *step, regex_scratch *scratch,
                                        const char *text, size_t length, byte_buffer *out,
                                        dsmoe_error *error)
{
    (void)step;
    (void)scratch;
    for (size_t at = 0; at < length;) {
        uint32_t code = 0;
        size_t width = utf8_decode(text + at, length - at, &code);
        if (!unicode_is_mark(code)) STATUS_TRY(byte_buffer_append(out, text + at, width, error));
        at += width;
    }
    return DSMOE_OK;
}

static dsmoe_status apply_strip(const normalizer_step *step, regex_scratch *scratch,
                                const char *text, size_t length, byte_buffer *out,
                                dsmoe_error *error)
{
    (void)scratch;
    size_t first = length, end = 0; /* of the part without whitespace at its ends */
    for (size_t at = 0; at < length;) {
        uint32_t code = 0;
        size_t width = utf8_decode(text + at, length - at, &code);
        if (!unicode_is_whitespace(code)) {
            if (first == length) first = at;
            end = at + width;
        }
        at += width;
    }
    size_t start = step->strip_left ? first : 0;
    size_t stop = step->strip_right ? end : length;
    return stop > start ? byte_buffer_append(out, text + start, stop - start, error) : DSMOE_OK;
}

static dsmoe_status apply_prepend(const normalizer_step *step, regex_scratch *scratch,
                                  const char *text, size_t length, byte_buffer *out,
                                  dsmoe_error *error)
{
    (void)scratch;
    if (length == 0) return DSMOE_OK;
    STATUS_TRY(byte_buffer_append(out, step->content.bytes, step->content.length, error));
    return byte_buffer_append(out, text, length, error);
}

static dsmoe_status check_growth(const byte_buffer *out, size_t length, dsmoe_error *error)
{
    if (out->length / MAX_GROWTH <= length + MAX_EXTRA) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "normalizer makes a text more than %d times as long", MAX_GROWTH);
}

static dsmoe_status apply_replace(const normalizer_step *step, regex_scratch *scratch,
                                  const char *text, size_t length, byte_buffer *out,
                                  dsmoe_error *error)
{
    pattern_scan scan = {
        .pattern = &step->pattern, .scratch = scratch, .text = text, .length = length};
    size_t at = 0, start, end;
    for (;;) {
        bool found;
        STATUS_TRY(pattern_next(&scan, &found, &start, &end, error));
        if (!found) break;
        STATUS_TRY(byte_buffer_append(out, text + at, start - at, error));
        STATUS_TRY(byte_buffer_append(out, step->content.bytes, step->content.length, error));
        STATUS_TRY(check_growth(out, length, error));
        at = end;
    }
    return byte_buffer_append(out, text + at, length - at, error);
}

/* ---- reading ------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    step_fn *apply;
    unicode_form form;
} step_types[] = {
    {"NFC", apply_form, UNICODE_NFC},
    {"NFD", apply_form, UNICODE_NFD},
    {"NFKC", apply_form, UNICODE_NFKC},
    {"NFKD", apply_form, UNICODE_NFKD},
    {"Lowercase", apply_lowercase, 0},
    {"Strip", apply_strip, 0},
    {"StripAccents", apply_strip_accents, 0},
    {"Replace", apply_replace, 0},
    {"Prepend", apply_prepend, 0},
};
enum { N_STEP_TYPES = sizeof step_types / sizeof *step_types };

static dsmoe_status read_content(normalizer_step *step, const json_node *node, const char *where,
                                 const char *key, dsmoe_error *error)
{
    const json_node *content;
    STATUS_TRY(field_need(node, where, key, JSON_KIND_STRING, &content, error));
    size_t length;
    const char *string = json_node_string(content, &length);
    return byte_buffer_append(&step->content, string, length, error);
}

static dsmoe_status read_members(normalizer_step *step, const json_node *node, dsmoe_error *error)
{
    if (step->apply == apply_strip) {
        const char *where = "normalizer Strip";
        STATUS_TRY(field_flag(node, where, "strip_left", true, &step->strip_left, error));
        return field_flag(node, where, "strip_right", true, &step->strip_right, error);
    }
    if (step->apply == apply_prepend)
        return read_content(step, node, "normalizer Prepend", "prepend", error);
    if (step->apply == apply_replace) {
        STATUS_TRY(read_content(step, node, "normalizer Replace", "content", error));
        return pattern_read(&step->pattern, node, "normalizer Replace", error);
    }
    return DSMOE_OK;
}

/* Flattens nested Sequences. The depth limit of JSON bounds the recursion. */
static dsmoe_status read_node(normalizer *n, const json_node *node, dsmoe_error *error)
{
    const char *type;
    STATUS_TRY(field_type(node, "normalizer", &type, error));
    if (!strcmp(type, "Sequence")) {
        const json_node *list;
        STATUS_TRY(
            field_need(node, "normalizer Sequence", "normalizers", JSON_KIND_ARRAY, &list, error));
        for (size_t i = 0; i < json_node_count(list); i++)
            STATUS_TRY(read_node(n, json_node_item(list, i), error));
        return DSMOE_OK;
    }
    if (n->n_steps == MAX_STEPS)
        return status_fail(error, DSMOE_ERROR_FORMAT, "normalizer has more than %d steps",
                           MAX_STEPS);
    for (int i = 0; i < N_STEP_TYPES; i++) {
        if (strcmp(type, step_types[i].type)) continue;
        normalizer_step *step = &n->steps[n->n_steps++];
        step->apply = step_types[i].apply;
        step->form = step_types[i].form;
        return read_members(step, node, error);
    }
    return status_fail(error, DSMOE_ERROR_FORMAT, "normalizer: type \"%.64s\" is not supported",
                       type);
}

dsmoe_status normalizer_read(normalizer *n, const json_node *node, dsmoe_error *error)
{
    if (!node) return DSMOE_OK;
    n->steps = calloc(MAX_STEPS, sizeof *n->steps);
    if (!n->steps)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for the normalizer");
    return read_node(n, node, error);
}

void normalizer_free(normalizer *n)
{
    for (size_t i = 0; i < n->n_steps; i++) {
        pattern_free(&n->steps[i].pattern);
        byte_buffer_free(&n->steps[i].content);
    }
    free(n->steps);
    memset(n, 0, sizeof *n);
}

/* ---- running ------------------------------------------------------------------------------- */

/* Runs all steps over one valid text. */
static dsmoe_status run_steps(const normalizer *n, regex_scratch *scratch, const char *text,
                              size_t length, byte_buffer *out, dsmoe_error *error)
{
    byte_buffer now = {0}, next = {0};
    dsmoe_status status = byte_buffer_append(&now, text, length, error);
    for (size_t i = 0; i < n->n_steps && status == DSMOE_OK; i++) {
        const normalizer_step *step = &n->steps[i];
        next.length = 0;
        /* An empty text may have no memory, but searches need a pointer. */
        const char *bytes = now.length ? now.bytes : "";
        status = step->apply(step, scratch, bytes, now.length, &next, error);
        if (status == DSMOE_OK) status = check_growth(&next, length, error);
        byte_buffer swap = now;
        now = next;
        next = swap;
    }
    if (status == DSMOE_OK) status = byte_buffer_append(out, now.bytes, now.length, error);
    byte_buffer_free(&now);
    byte_buffer_free(&next);
    return status;
}

dsmoe_status normalizer_run(const normalizer *n, regex_scratch *scratch, const char *text,
                            size_t length, byte_buffer *out, dsmoe_error *error)
{
    while (length > 0) {
        size_t valid = unicode_valid_length(text, length);
        if (valid > 0) {
            STATUS_TRY(run_steps(n, scratch, text, valid, out, error));
        } else {
            STATUS_TRY(byte_buffer_append(out, text, 1, error));
            valid = 1;
        }
        text += valid;
        length -= valid;
    }
    return DSMOE_OK;
}

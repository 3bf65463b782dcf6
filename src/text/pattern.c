/* pattern.c - what a tokenizer looks for in a text. */
#include "text/pattern.h"

#include <string.h>

#include "base/utf8.h"
#include "text/fields.h"
#include "text/unicode.h"

dsmoe_status pattern_read(pattern *p, const json_node *object, const char *where,
                          dsmoe_error *error)
{
    const json_node *node;
    STATUS_TRY(field_need(object, where, "pattern", JSON_KIND_OBJECT, &node, error));
    const char *string, *expression;
    size_t string_length, expression_length;
    STATUS_TRY(field_string(node, where, "String", &string, &string_length, error));
    STATUS_TRY(field_string(node, where, "Regex", &expression, &expression_length, error));
    if (!string == !expression)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: pattern must have one of String and Regex", where);
    if (string) {
        p->kind = PATTERN_STRING;
        if (string_length == 0)
            return status_fail(error, DSMOE_ERROR_FORMAT, "%s: pattern is empty", where);
        return byte_buffer_append(&p->string, string, string_length, error);
    }
    p->kind = PATTERN_REGEX;
    dsmoe_error reason;
    dsmoe_status status = regex_compile(expression, expression_length, &p->expression, &reason);
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", where, reason.message);
    return DSMOE_OK;
}

void pattern_free(pattern *p)
{
    regex_free(p->expression);
    byte_buffer_free(&p->string);
    memset(p, 0, sizeof *p);
}

static bool find_string(const pattern_scan *scan, size_t *start, size_t *end)
{
    const byte_buffer *string = &scan->pattern->string;
    const char *place =
        memmem(scan->text + scan->from, scan->length - scan->from, string->bytes, string->length);
    if (!place) return false;
    *start = (size_t)(place - scan->text);
    *end = *start + string->length;
    return true;
}

static bool find_numeric(const pattern_scan *scan, size_t *start, size_t *end)
{
    for (size_t at = scan->from; at < scan->length;) {
        uint32_t code = 0;
        size_t width = utf8_decode(scan->text + at, scan->length - at, &code);
        if (unicode_is_numeric(code)) {
            *start = at;
            *end = at + width;
            return true;
        }
        at += width ? width : 1;
    }
    return false;
}

static size_t character_width(const pattern_scan *scan)
{
    uint32_t code;
    size_t width = utf8_decode(scan->text + scan->from, scan->length - scan->from, &code);
    return width ? width : 1;
}

dsmoe_status pattern_next(pattern_scan *scan, bool *found, size_t *start, size_t *end,
                          dsmoe_error *error)
{
    *found = false;
    while (scan->from <= scan->length) {
        switch (scan->pattern->kind) {
        case PATTERN_STRING: *found = find_string(scan, start, end); break;
        case PATTERN_NUMERIC: *found = find_numeric(scan, start, end); break;
        case PATTERN_REGEX:
            STATUS_TRY(regex_search(scan->pattern->expression, scan->scratch, scan->text,
                                    scan->length, scan->from, found, start, end, error));
        }
        if (!*found) return DSMOE_OK;
        if (*start == *end && scan->matched && scan->last_end == *end) {
            *found = false; /* empty, right after the last match: look one character further */
            scan->from += character_width(scan);
            continue;
        }
        scan->matched = true;
        scan->from = scan->last_end = *end;
        return DSMOE_OK;
    }
    return DSMOE_OK;
}

/* json.c - the only file that uses jansson: a json_node is a json_t under another name. */
#include "formats/json.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/whole_file.h"

enum {
    /* Parsing and freeing recurse; jansson's own limit (2048) is fixed when it is built. */
    JSON_MAX_DEPTH = 128,
    /* "[]," is three bytes of text and two hundred of memory, so a file's size alone does not bound
     * what its tree takes. This is ten times the values of a tokenizer.json with 100,000 tokens. */
    JSON_MAX_VALUES = 4 << 20,
};

static json_t *to_jansson(const json_node *node) { return (json_t *)node; }
static json_node *from_jansson(json_t *value) { return (json_node *)value; }

/* Refuses what the parser must not get: nesting and sizes that cost too much before jansson refuses
 * them, and NUL bytes, which jansson skips between tokens. The text need not be valid JSON. */
static dsmoe_status check_structure(const char *text, size_t length, const char *source,
                                    dsmoe_error *error)
{
    size_t depth = 0, n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '\0')
            return status_fail(error, DSMOE_ERROR_FORMAT, "%s: NUL byte in JSON at offset %zu",
                               source, i);
        if (in_string) {
            if (c == '\\' && i + 1 < length && text[i + 1] != '\0')
                i++; /* whatever is escaped, it does not end the string */
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '[' || c == '{') {
            if (++depth > JSON_MAX_DEPTH)
                return status_fail(error, DSMOE_ERROR_FORMAT,
                                   "%s: JSON nested deeper than %d at offset %zu", source,
                                   JSON_MAX_DEPTH, i);
            n_values++;
        }
        if ((c == ']' || c == '}') && depth > 0) depth--;
        if (c == ',') n_values++;
        if (n_values > JSON_MAX_VALUES)
            return status_fail(error, DSMOE_ERROR_FORMAT, "%s: more than %d JSON values", source,
                               JSON_MAX_VALUES);
    }
    return DSMOE_OK;
}

static dsmoe_status parse(const char *text, size_t length, const char *source, size_t flags,
                          json_node **node, dsmoe_error *error)
{
    *node = NULL;
    STATUS_TRY(check_structure(text, length, source, error));
    json_error_t why;
    json_t *value =
        json_loadb(text, length, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!value && why.text[0] == '\0') /* nothing wrong with the text */
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source);
    if (!value)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: bad JSON in line %d, column %d: %s",
                           source, why.line, why.column,
                           strstr(why.text, "JSON_ALLOW_NUL") ? "a NUL character in a string"
                                                              : why.text);
    *node = from_jansson(value);
    return DSMOE_OK;
}

dsmoe_status json_node_parse(const char *text, size_t length, const char *source, json_node **node,
                             dsmoe_error *error)
{
    return parse(text, length, source, 0, node, error);
}

dsmoe_status json_node_parse_nul(const char *text, size_t length, const char *source,
                                 json_node **node, dsmoe_error *error)
{
    return parse(text, length, source, JSON_ALLOW_NUL, node, error);
}

/* The parser gets one line at a time, so it calls each "line 1". */
static const char *without_line(char *message)
{
    static const char one[] = "line 1, ";
    char *at = strstr(message, one);
    if (at) memmove(at, at + sizeof one - 1, strlen(at + sizeof one - 1) + 1);
    return !strncmp(message, ": ", 2) ? message + 2 : message;
}

dsmoe_status json_line_parse(const char *line, size_t length, bool allows_nul, json_node **node,
                             dsmoe_error *error)
{
    dsmoe_error reason;
    dsmoe_status status = parse(line, length, "", allows_nul ? JSON_ALLOW_NUL : 0, node, &reason);
    if (status == DSMOE_OK) return DSMOE_OK;
    return status_fail(error, status, "%s", without_line(reason.message));
}

/* Whether the digits at text[at] may be too many for int64, with no point or exponent after them. */
static bool is_wide_integer(const char *text, size_t length, size_t at, size_t *end)
{
    enum { SAFE_DIGITS = 18 };
    for (*end = at; *end < length && text[*end] >= '0' && text[*end] <= '9';) ++*end;
    return *end - at > SAFE_DIGITS && (*end == length || !strchr(".eE", text[*end]));
}

/* A copy of the text in which wide integers have an exponent, which makes them reals. The caller frees it.
 * NULL if out of memory. */
static char *widen_integers(const char *text, size_t length, size_t *widened)
{
    static const char exponent[] = "e0";
    char *copy;
    FILE *out = open_memstream(&copy, widened);
    if (!out) return NULL;
    bool in_string = false;
    for (size_t i = 0, end; i < length; i++) {
        if (!in_string && text[i] >= '0' && text[i] <= '9') {
            bool wide = is_wide_integer(text, length, i, &end);
            fwrite(text + i, 1, end - i, out);
            if (wide) fputs(exponent, out);
            i = end - 1;
            continue;
        }
        fputc(text[i], out);
        if (in_string && text[i] == '\\' && i + 1 < length)
            fputc(text[++i], out);
        else if (text[i] == '"')
            in_string = !in_string;
    }
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole) return copy;
    free(copy);
    return NULL;
}

dsmoe_status json_node_parse_wide(const char *text, size_t length, const char *source,
                                  json_node **node, dsmoe_error *error)
{
    *node = NULL;
    size_t widened;
    char *copy = widen_integers(text, length, &widened);
    if (!copy) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source);
    dsmoe_status status = json_node_parse(copy, widened, source, node, error);
    free(copy);
    return status;
}

dsmoe_status json_node_read(const char *path, size_t max_size, json_node **node, dsmoe_error *error)
{
    *node = NULL;
    whole_file file;
    STATUS_TRY(whole_file_read(&file, path, max_size, error));
    dsmoe_status status = json_node_parse(file.bytes, file.size, path, node, error);
    whole_file_free(&file);
    return status;
}

void json_node_free(json_node *root) { json_decref(to_jansson(root)); }

json_kind json_node_kind(const json_node *node)
{
    switch (json_typeof(to_jansson(node))) {
    case JSON_OBJECT: return JSON_KIND_OBJECT;
    case JSON_ARRAY: return JSON_KIND_ARRAY;
    case JSON_STRING: return JSON_KIND_STRING;
    case JSON_INTEGER: return JSON_KIND_INTEGER;
    case JSON_REAL: return JSON_KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return JSON_KIND_BOOL;
    case JSON_NULL: break;
    }
    return JSON_KIND_NULL;
}

const char *json_kind_name(json_kind kind)
{
    switch (kind) {
    case JSON_KIND_NULL: return "null";
    case JSON_KIND_BOOL: return "a boolean";
    case JSON_KIND_INTEGER: return "an integer";
    case JSON_KIND_REAL: return "a real number";
    case JSON_KIND_STRING: return "a string";
    case JSON_KIND_ARRAY: return "an array";
    case JSON_KIND_OBJECT: return "an object";
    }
    return "an unknown kind";
}

bool json_node_bool(const json_node *node)
{
    assert(json_is_boolean(to_jansson(node)));
    return json_is_true(to_jansson(node));
}

int64_t json_node_integer(const json_node *node)
{
    assert(json_is_integer(to_jansson(node)));
    return json_integer_value(to_jansson(node));
}

double json_node_number(const json_node *node)
{
    assert(json_is_number(to_jansson(node)));
    return json_number_value(to_jansson(node));
}

const char *json_node_string(const json_node *node, size_t *length)
{
    assert(json_is_string(to_jansson(node)));
    if (length) *length = json_string_length(to_jansson(node));
    return json_string_value(to_jansson(node));
}

size_t json_node_count(const json_node *node)
{
    const json_t *value = to_jansson(node);
    assert(json_is_array(value) || json_is_object(value));
    return json_is_array(value) ? json_array_size(value) : json_object_size(value);
}

const json_node *json_node_item(const json_node *array, size_t index)
{
    assert(json_is_array(to_jansson(array)));
    return from_jansson(json_array_get(to_jansson(array), index));
}

const json_node *json_node_member(const json_node *object, const char *key)
{
    assert(json_is_object(to_jansson(object)));
    return from_jansson(json_object_get(to_jansson(object), key));
}

bool json_node_same(const json_node *a, const json_node *b)
{
    return json_equal(to_jansson(a), to_jansson(b));
}

dsmoe_status json_node_each(const json_node *object, json_visit_fn *visit, void *context,
                            dsmoe_error *error)
{
    json_t *value = to_jansson(object);
    assert(json_is_object(value));
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
        STATUS_TRY(visit(context, json_object_iter_key(at),
                         from_jansson(json_object_iter_value(at)), error));
    return DSMOE_OK;
}

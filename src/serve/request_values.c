/* request_values.c - single values of a request, and the sentence that refuses one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/request_parts.h"

const json_node *request_member(const json_node *object, const char *name)
{
    const json_node *node = json_node_member(object, name);
    return node && json_node_kind(node) != JSON_KIND_NULL ? node : NULL;
}

static void describe_string(const json_node *node, char text[REQUEST_VALUE_TEXT])
{
    enum { SHOWN = 48 };
    size_t length;
    const char *string = json_node_string(node, &length);
    bool cut = length > SHOWN;
    if (cut) length = dsmoe_utf8_complete(string, SHOWN);
    snprintf(text, REQUEST_VALUE_TEXT, "\"%.*s%s\"", (int)length, string, cut ? "…" : "");
}

const char *request_describe(const json_node *node, char text[REQUEST_VALUE_TEXT])
{
    switch (json_node_kind(node)) {
    case JSON_KIND_BOOL:
        snprintf(text, REQUEST_VALUE_TEXT, "%s", json_node_bool(node) ? "true" : "false");
        break;
    case JSON_KIND_INTEGER:
        snprintf(text, REQUEST_VALUE_TEXT, "%" PRId64, json_node_integer(node));
        break;
    case JSON_KIND_REAL: snprintf(text, REQUEST_VALUE_TEXT, "%.10g", json_node_number(node)); break;
    case JSON_KIND_STRING: describe_string(node, text); break;
    case JSON_KIND_ARRAY:
        snprintf(text, REQUEST_VALUE_TEXT, "an array of %zu", json_node_count(node));
        break;
    case JSON_KIND_OBJECT:
    case JSON_KIND_NULL:
        snprintf(text, REQUEST_VALUE_TEXT, "%s", json_kind_name(json_node_kind(node)));
        break;
    }
    return text;
}

bool request_refuse_value(const request_reader *q, const char *name, const json_node *node,
                          const char *must)
{
    char value[REQUEST_VALUE_TEXT];
    return request_refuse(q->error, 400, name, "%s is %s; it must be %s", name,
                          request_describe(node, value), must);
}

bool request_refuse_memory(const request_reader *q)
{
    return request_refuse(q->error, 503, "", "not enough memory");
}

/* ---- types of nodes -------------------------------------------------------------------------- */

bool request_is_integer(const json_node *node, int64_t *value)
{
    /* Beyond 2^53 a double may be the rounded value of another integer. */
    static const double exact = 9007199254740992.0;
    if (json_node_kind(node) == JSON_KIND_INTEGER) {
        *value = json_node_integer(node);
        return true;
    }
    double number;
    if (!request_is_number(node, &number) || fabs(number) > exact || number != rint(number))
        return false;
    *value = (int64_t)number;
    return true;
}

bool request_is_number(const json_node *node, double *value)
{
    json_kind kind = json_node_kind(node);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL) return false;
    *value = json_node_number(node);
    return isfinite(*value);
}

bool request_is_string(const json_node *node, const char *string)
{
    return json_node_kind(node) == JSON_KIND_STRING &&
           !strcmp(json_node_string(node, NULL), string);
}

/* ---- members of the body --------------------------------------------------------------------- */

bool request_read_flag(const request_reader *q, const char *name, bool *value)
{
    const json_node *node = request_member(q->root, name);
    if (!node) return true;
    if (json_node_kind(node) != JSON_KIND_BOOL)
        return request_refuse_value(q, name, node, "true or false");
    *value = json_node_bool(node);
    return true;
}

bool request_read_integer(const request_reader *q, const char *name, int64_t min, int64_t max,
                          int64_t *value)
{
    const json_node *node = request_member(q->root, name);
    if (!node) return true;
    int64_t number;
    if (!request_is_integer(node, &number) || number < min || number > max) {
        char must[80];
        snprintf(must, sizeof must, "an integer from %" PRId64 " to %" PRId64, min, max);
        return request_refuse_value(q, name, node, must);
    }
    *value = number;
    return true;
}

bool request_read_number(const request_reader *q, const char *name, double min, double max,
                         double *value)
{
    const json_node *node = request_member(q->root, name);
    if (!node) return true;
    double number;
    if (!request_is_number(node, &number) || number < min || number > max) {
        char must[80];
        snprintf(must, sizeof must, "a number from %g to %g", min, max);
        return request_refuse_value(q, name, node, must);
    }
    *value = number;
    return true;
}

/* json.h - JSON from untrusted bytes, as a tree of nodes. The library behind it (jansson) is named
 * in json.c only. Objects with a duplicate key, deep nesting, invalid UTF-8 and text after the
 * value are errors. */
#ifndef DSMOE_FORMATS_JSON_H
#define DSMOE_FORMATS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INTEGER, /* written without point or exponent, fits int64 */
    JSON_KIND_REAL,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
} json_kind;

typedef struct json_node json_node;

/* `source` names the text in messages (a file's path). */
dsmoe_status json_node_parse(const char *text, size_t length, const char *source, json_node **node,
                             dsmoe_error *error);
/* Like json_node_parse, but integers beyond int64 are allowed and become reals: public tools write
 * 10^30 for "no limit". */
dsmoe_status json_node_parse_wide(const char *text, size_t length, const char *source,
                                  json_node **node, dsmoe_error *error);
/* Like json_node_parse, but strings may hold "\u0000". */
dsmoe_status json_node_parse_nul(const char *text, size_t length, const char *source,
                                 json_node **node, dsmoe_error *error);
/* Parses one line of a JSON Lines file: messages name a column, but no file and no line. With
 * allows_nul, strings may hold "\u0000". */
dsmoe_status json_line_parse(const char *line, size_t length, bool allows_nul, json_node **node,
                             dsmoe_error *error);
/* Parses a whole file of at most `max_size` bytes. */
dsmoe_status json_node_read(const char *path, size_t max_size, json_node **node,
                            dsmoe_error *error);
/* Frees a tree; only its root may be given. NULL is allowed. */
void json_node_free(json_node *root);

json_kind json_node_kind(const json_node *node);
const char *json_kind_name(json_kind kind); /* "an integer", "a string", … for messages */

/* The value of a node of that kind; calling these on another kind is a programming error. */
bool json_node_bool(const json_node *node);
int64_t json_node_integer(const json_node *node);
double json_node_number(const json_node *node); /* integer or real */
const char *json_node_string(const json_node *node, size_t *length);

size_t json_node_count(const json_node *node); /* items of an array or members of an object */
const json_node *json_node_item(const json_node *array, size_t index);
const json_node *json_node_member(const json_node *object, const char *key); /* NULL if absent */

/* Whether two values are equal, with all their items and members; the order of members does not
 * matter. An integer never equals a real. */
bool json_node_same(const json_node *a, const json_node *b);

/* Walks an object's members in the order of the text until `visit` fails. */
typedef dsmoe_status json_visit_fn(void *context, const char *key, const json_node *value,
                                   dsmoe_error *error);
dsmoe_status json_node_each(const json_node *object, json_visit_fn *visit, void *context,
                            dsmoe_error *error);

#endif

/* fields.c - members of the JSON objects that describe a tokenizer. */
#include "text/fields.h"

const json_node *field_node(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    return node && json_node_kind(node) != JSON_KIND_NULL ? node : NULL;
}

static dsmoe_status wrong_kind(const char *where, const char *key, const char *wanted,
                               const json_node *node, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s must be %s, not %s", where, key, wanted,
                       json_kind_name(json_node_kind(node)));
}

dsmoe_status field_flag(const json_node *object, const char *where, const char *key, bool absent,
                        bool *value, dsmoe_error *error)
{
    const json_node *node = field_node(object, key);
    if (node && json_node_kind(node) != JSON_KIND_BOOL)
        return wrong_kind(where, key, "true or false", node, error);
    *value = node ? json_node_bool(node) : absent;
    return DSMOE_OK;
}

dsmoe_status field_string(const json_node *object, const char *where, const char *key,
                          const char **string, size_t *length, dsmoe_error *error)
{
    const json_node *node = field_node(object, key);
    *string = NULL;
    *length = 0;
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_STRING)
        return wrong_kind(where, key, "a string", node, error);
    *string = json_node_string(node, length);
    return DSMOE_OK;
}

dsmoe_status field_need(const json_node *object, const char *where, const char *key, json_kind kind,
                        const json_node **node, dsmoe_error *error)
{
    *node = field_node(object, key);
    if (!*node) return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s is missing", where, key);
    if (json_node_kind(*node) != kind)
        return wrong_kind(where, key, json_kind_name(kind), *node, error);
    return DSMOE_OK;
}

dsmoe_status field_type(const json_node *object, const char *where, const char **type,
                        dsmoe_error *error)
{
    if (json_node_kind(object) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s must be an object, not %s", where,
                           json_kind_name(json_node_kind(object)));
    const json_node *node;
    STATUS_TRY(field_need(object, where, "type", JSON_KIND_STRING, &node, error));
    *type = json_node_string(node, NULL);
    return DSMOE_OK;
}

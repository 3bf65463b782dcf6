/* keys.c - reads numbers and flags of a JSON object into a struct by a table. */
#include "model/keys.h"

#include <inttypes.h>
#include <stdbool.h>

static double key_load(const config_key *key, const void *object)
{
    const char *field = (const char *)object + key->offset;
    switch (key->kind) {
    case KEY_INTEGER: return (double)*(const int64_t *)field;
    case KEY_NUMBER: return *(const double *)field;
    case KEY_FLAG: return *(const bool *)field;
    }
    return 0;
}

static void key_store(const config_key *key, double value, void *object)
{
    char *field = (char *)object + key->offset;
    switch (key->kind) {
    case KEY_INTEGER: *(int64_t *)field = (int64_t)value; break;
    case KEY_NUMBER: *(double *)field = value; break;
    case KEY_FLAG: *(bool *)field = value != 0; break;
    }
}

static dsmoe_status key_check_range(const config_key *key, double value, dsmoe_error *error)
{
    if (value >= key->min && value <= key->max) return DSMOE_OK; /* false for a NaN */
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %.16g, outside %.16g to %.16g", key->name,
                       value, key->min, key->max);
}

static dsmoe_status key_read(const config_key *key, const json_node *root, void *object,
                             dsmoe_error *error)
{
    const json_node *node = json_node_member(root, key->name);
    if (!node && key->need == KEY_REQUIRED)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s is missing", key->name);
    json_kind kind = node ? json_node_kind(node) : JSON_KIND_NULL;
    if (!node || (kind == JSON_KIND_NULL && key->need == KEY_NULLABLE)) {
        key_store(key, key->absent, object);
        return DSMOE_OK;
    }

    static const char *const wanted[] = {"an integer", "a number", "true or false"};
    bool fits = key->kind == KEY_FLAG ? kind == JSON_KIND_BOOL
                                      : kind == JSON_KIND_INTEGER ||
                                            (kind == JSON_KIND_REAL && key->kind == KEY_NUMBER);
    if (!fits)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be %s, not %s", key->name,
                           wanted[key->kind], json_kind_name(kind));
    double value = key->kind == KEY_FLAG ? json_node_bool(node) : json_node_number(node);
    STATUS_TRY(key_check_range(key, value, error));
    key_store(key, value, object);
    return DSMOE_OK;
}

void keys_default(const config_key *keys, int n_keys, void *object)
{
    for (int i = 0; i < n_keys; i++) key_store(&keys[i], keys[i].absent, object);
}

dsmoe_status keys_read(const config_key *keys, int n_keys, const json_node *root, void *object,
                       dsmoe_error *error)
{
    for (int i = 0; i < n_keys; i++) STATUS_TRY(key_read(&keys[i], root, object, error));
    return DSMOE_OK;
}

dsmoe_status keys_check(const config_key *keys, int n_keys, const void *object, dsmoe_error *error)
{
    for (int i = 0; i < n_keys; i++) {
        double value = key_load(&keys[i], object);
        if (keys[i].need != KEY_REQUIRED && value == keys[i].absent) continue;
        STATUS_TRY(key_check_range(&keys[i], value, error));
    }
    return DSMOE_OK;
}

static dsmoe_status read_id(const json_node *node, const char *name, int64_t vocab_size,
                            int64_t *id, dsmoe_error *error)
{
    json_kind kind = json_node_kind(node);
    if (kind != JSON_KIND_INTEGER)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be an integer, not %s", name,
                           json_kind_name(kind));
    *id = json_node_integer(node);
    if (*id < 0 || *id >= vocab_size)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s is %" PRId64
                           ", which is not a token id below the vocab_size of %" PRId64,
                           name, *id, vocab_size);
    return DSMOE_OK;
}

dsmoe_status keys_read_ids(const json_node *root, const char *name, int64_t vocab_size,
                           int64_t *ids, int max_ids, int *n_ids, dsmoe_error *error)
{
    *n_ids = 0;
    const json_node *node = json_node_member(root, name);
    if (!node || json_node_kind(node) == JSON_KIND_NULL) return DSMOE_OK;
    if (max_ids == 1 || json_node_kind(node) != JSON_KIND_ARRAY) {
        STATUS_TRY(read_id(node, name, vocab_size, ids, error));
        *n_ids = 1;
        return DSMOE_OK;
    }
    size_t count = json_node_count(node);
    if (count < 1 || count > (size_t)max_ids)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s is an array of %zu ids, not of 1 to %d",
                           name, count, max_ids);
    for (size_t i = 0; i < count; i++)
        STATUS_TRY(read_id(json_node_item(node, i), name, vocab_size, &ids[i], error));
    *n_ids = (int)count;
    return DSMOE_OK;
}

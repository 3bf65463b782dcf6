/* keys.h - reads numbers and flags of a JSON object into a struct by a table: each row tells where a
 * key is stored, what it may hold, and its value if the file leaves it out. */
#ifndef DSMOE_MODEL_KEYS_H
#define DSMOE_MODEL_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "formats/json.h"

typedef enum key_kind { KEY_INTEGER, KEY_NUMBER, KEY_FLAG } key_kind; /* int64_t, double, bool */

/* What a file may leave out: nothing, the key, or the key's value as well (null). */
typedef enum key_need { KEY_REQUIRED, KEY_OPTIONAL, KEY_NULLABLE } key_need;

typedef struct config_key {
    const char *name;
    size_t offset; /* of the field in the struct */
    key_kind kind;
    key_need need;
    double min, max;
    double absent; /* the public default; 0 for a size that only some models have */
} config_key;

/* Sets every field as if its key were absent. */
void keys_default(const config_key *keys, int n_keys, void *object);
/* Fills the fields of *object from the members of `root`. Messages name the key, not the file. */
dsmoe_status keys_read(const config_key *keys, int n_keys, const json_node *root, void *object,
                       dsmoe_error *error);
/* Checks the same ranges for a struct from anywhere. The value of an absent key is in range. */
dsmoe_status keys_check(const config_key *keys, int n_keys, const void *object, dsmoe_error *error);

/* Reads token ids below vocab_size: one integer or, if max_ids is more than 1, an array of 1 to
 * max_ids of them. There are none if the key is absent or null. */
dsmoe_status keys_read_ids(const json_node *root, const char *name, int64_t vocab_size,
                           int64_t *ids, int max_ids, int *n_ids, dsmoe_error *error);

#endif

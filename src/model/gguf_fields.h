/* gguf_fields.h - reads metadata of a GGUF file into a configuration by tables: each row pairs a key of the
 * file with a key of config.json. */
#ifndef DSMOE_MODEL_GGUF_FIELDS_H
#define DSMOE_MODEL_GGUF_FIELDS_H

#include "formats/gguf.h"

/* A key that begins with a point is appended to the name of the architecture. */
typedef struct gguf_field {
    const char *key, *name; /* in the file, in config.json */
    size_t offset;          /* of the field in dsmoe_config: an int64_t or a double */
    bool required;
} gguf_field;
#define GGUF_FIELD(key, name, required)                                                            \
    {                                                                                              \
        key, #name, offsetof(dsmoe_config, name), required                                         \
    }

typedef struct gguf_fields {
    const gguf_field *at;
    int n;
    bool are_numbers; /* otherwise integers */
} gguf_fields;

typedef struct gguf_reader {
    const gguf *file;
    const char *architecture;
    const gguf_fields *tables; /* a later key overrides an earlier one */
    int n_tables;
} gguf_reader;

/* The whole key, returned by value so that its name can be used in a call. */
typedef struct gguf_whole_key {
    char name[80];
} gguf_whole_key;
gguf_whole_key gguf_reader_key(const gguf_reader *r, const char *key);

/* Fills the fields whose keys are there. */
dsmoe_status gguf_reader_fill(const gguf_reader *r, dsmoe_config *config, dsmoe_error *error);

/* Read one value; a missing key leaves it as it is. */
dsmoe_status gguf_reader_int(const gguf_reader *r, const char *key, int64_t *value,
                             dsmoe_error *error);
dsmoe_status gguf_reader_number(const gguf_reader *r, const char *key, double *value,
                                dsmoe_error *error);
dsmoe_status gguf_reader_flag(const gguf_reader *r, const char *key, bool *value,
                              dsmoe_error *error);
dsmoe_status gguf_reader_string(const gguf_reader *r, const char *key, gguf_string *value,
                                dsmoe_error *error);
/* Whether there is an integer of that name. */
bool gguf_reader_has_int(const gguf_reader *r, const char *key);

/* Check an optional key that may have only one value. */
dsmoe_status gguf_reader_expect_int(const gguf_reader *r, const char *key, int64_t wanted,
                                    dsmoe_error *error);
dsmoe_status gguf_reader_expect_number(const gguf_reader *r, const char *key, double wanted,
                                       dsmoe_error *error);

/* Reports a message about keys of config.json, with the names of the file's keys instead. */
dsmoe_status gguf_reader_fail(const gguf_reader *r, dsmoe_status status, const char *message,
                              dsmoe_error *error);

/* The shortest decimal number for a float32 of the file: 1e-6, not 9.99999997e-07. Both are the same
 * float32, which is what is computed with. */
double gguf_shortest(double value);

#endif

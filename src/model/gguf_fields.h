/* gguf_fields.h - metadata of a GGUF file read into a configuration by tables: one row says which key of
 * the file is which key of config.json. */
#ifndef DSMOE_MODEL_GGUF_FIELDS_H
#define DSMOE_MODEL_GGUF_FIELDS_H

#include "formats/gguf.h"

/* A key that begins with a point comes after the name of the architecture. */
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
    const gguf_fields *tables; /* a key that comes later has the last word */
    int n_tables;
} gguf_reader;

/* The whole key; its name can be used where the function is called. */
typedef struct gguf_whole_key {
    char name[80];
} gguf_whole_key;
gguf_whole_key gguf_reader_key(const gguf_reader *r, const char *key);

/* Fills the fields whose keys are there. */
dsmoe_status gguf_reader_fill(const gguf_reader *r, dsmoe_config *config, dsmoe_error *error);

/* One value; what is not there leaves it as it is. */
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

/* Keys that may be there, but have one value that such a model computes with. */
dsmoe_status gguf_reader_expect_int(const gguf_reader *r, const char *key, int64_t wanted,
                                    dsmoe_error *error);
dsmoe_status gguf_reader_expect_number(const gguf_reader *r, const char *key, double wanted,
                                       dsmoe_error *error);

/* An error in the words of config.json, in those of the file. */
dsmoe_status gguf_reader_fail(const gguf_reader *r, dsmoe_status status, const char *message,
                              dsmoe_error *error);

/* A float32 of the file as the decimal number that it was made from: 1e-6, not 9.99999997e-07. Both
 * are the same float32, and that is what is computed with. */
double gguf_shortest(double value);

#endif

/* made_keys.h - metadata of a made GGUF file; a test can change each key. */
#ifndef DSMOE_TESTS_MADE_KEYS_H
#define DSMOE_TESTS_MADE_KEYS_H

#include "formats/gguf_writer.h"

/* A key that replaces one of the model's keys, or is written in addition to them. */
typedef enum made_key_kind {
    MADE_ABSENT,
    MADE_U32,
    MADE_I32, /* the writer of GGUF files has no such type */
    MADE_F32,
    MADE_BOOL,
    MADE_STRING,
} made_key_kind;
typedef struct made_key {
    const char *key;
    made_key_kind kind;
    double number;
    const char *text;
} made_key;

/* A writer, and the keys that a test gives. */
typedef struct made_keys {
    gguf_writer *writer;
    const made_key *given; /* [n_given] */
    int n_given;
} made_keys;

/* Each writes a key of the model, unless the test gives that key. */
void made_keys_int(const made_keys *k, const char *key, int64_t value);
void made_keys_number(const made_keys *k, const char *key, double value);
void made_keys_flag(const made_keys *k, const char *key, bool value);
void made_keys_text(const made_keys *k, const char *key, const char *value);
/* Writes the keys that the test gives. */
void made_keys_given(const made_keys *k);
/* Changes the integers that should be signed, in the finished file. */
void made_keys_sign(const made_keys *k, const char *path);

#endif

/* vocabulary.h - tokens by id and ids by bytes. */
#ifndef DSMOE_TEXT_VOCABULARY_H
#define DSMOE_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/buffer.h"

/* Ids are below this, so that a wrong number cannot make a huge table; public models have 256 Ki. */
enum { VOCABULARY_MAX_IDS = 1 << 20 };

typedef struct vocabulary_token {
    size_t offset; /* into text */
    uint32_t length;
    bool present; /* ids may have holes */
    bool special;
} vocabulary_token;

typedef struct vocabulary_slot {
    uint32_t hash;
    int32_t id; /* -1: free */
} vocabulary_slot;

typedef struct vocabulary {
    vocabulary_token *tokens;
    size_t n_ids, capacity;
    byte_buffer text;       /* the bytes of all tokens */
    vocabulary_slot *slots; /* open addressing over a power of two */
    size_t n_slots;
    int32_t byte_ids[256]; /* the tokens of one byte, -1: none */
} vocabulary;

/* Makes room to find up to `n_tokens` tokens by their bytes. */
dsmoe_status vocabulary_init(vocabulary *v, size_t n_tokens, dsmoe_error *error);
/* Allowed on a zeroed vocabulary. */
void vocabulary_free(vocabulary *v);

/* Adds the token `key` of a byte-level vocabulary, which can then be found by the bytes that it spells.
 * A key with a character outside of the alphabet is stored as it is and is not found: no text leads to
 * it. An id that is taken or out of range, an empty token and duplicate bytes are errors. */
dsmoe_status vocabulary_add_key(vocabulary *v, int64_t id, const char *key, size_t length,
                                dsmoe_error *error);
/* Adds a token that consists of its content and is not found by its bytes. Its id must be free, or
 * already have the same bytes. */
dsmoe_status vocabulary_add_literal(vocabulary *v, int64_t id, const char *content, size_t length,
                                    bool special, dsmoe_error *error);

/* The id of the token with these bytes, -1 if there is none. */
int32_t vocabulary_find(const vocabulary *v, const char *bytes, size_t length);
/* The id of a token as a byte-level vocabulary spells it, -1 if there is none. */
int32_t vocabulary_find_key(const vocabulary *v, const char *key, size_t length);

/* The id of a token with these bytes, of any kind but preferably special; -1 if there is none. Looks at
 * every token. */
int32_t vocabulary_find_content(const vocabulary *v, const char *content, size_t length);

/* NULL if there is no such id. */
const vocabulary_token *vocabulary_token_at(const vocabulary *v, int64_t id);
const char *vocabulary_piece(const vocabulary *v, int64_t id, size_t *length);

#endif

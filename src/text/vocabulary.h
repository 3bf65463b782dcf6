/* vocabulary.h - tokens by id and ids by bytes. */
#ifndef DSMOE_TEXT_VOCABULARY_H
#define DSMOE_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/buffer.h"

/* Ids are below this, so a lying number cannot make a large table; public models have 256 Ki. */
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

/* Room to find up to `n_tokens` tokens by their bytes. */
dsmoe_status vocabulary_init(vocabulary *v, size_t n_tokens, dsmoe_error *error);
/* Allowed on a zeroed vocabulary. */
void vocabulary_free(vocabulary *v);

/* The token `key` of a byte-level vocabulary, which may be found by the bytes that it spells from
 * now on. One with a character outside of the alphabet is itself and is not found: no text leads to
 * it. An id that is taken or absurd, an empty token and equal bytes are errors. */
dsmoe_status vocabulary_add_key(vocabulary *v, int64_t id, const char *key, size_t length,
                                dsmoe_error *error);
/* A token that is its content, not found by its bytes: in place of the same token in the byte-level
 * alphabet, or at a free id. */
dsmoe_status vocabulary_add_literal(vocabulary *v, int64_t id, const char *content, size_t length,
                                    bool special, dsmoe_error *error);

/* The id, -1 if there is none. */
int32_t vocabulary_find(const vocabulary *v, const char *bytes, size_t length);
/* The id of a token as a byte-level vocabulary spells it, -1 if there is none. */
int32_t vocabulary_find_key(const vocabulary *v, const char *key, size_t length);

/* The id of a token with these bytes, of whatever kind, special ones first; -1 if there is none.
 * Looks at every token. */
int32_t vocabulary_find_content(const vocabulary *v, const char *content, size_t length);

/* NULL if there is no such id. */
const vocabulary_token *vocabulary_token_at(const vocabulary *v, int64_t id);
const char *vocabulary_piece(const vocabulary *v, int64_t id, size_t *length);

#endif

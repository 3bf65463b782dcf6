/* token_shard.h - a file of tokens in the public form: 256 int32 (magic, version, count, zeros), then
 * the tokens. Magic 20240520 with version 1 has tokens of two bytes, 20240801 with version 7 of four.
 * All numbers are little-endian. */
#ifndef DSMOE_FORMATS_TOKEN_SHARD_H
#define DSMOE_FORMATS_TOKEN_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum {
    TOKEN_SHARD_HEADER_SIZE = 1024,
    TOKEN_SHARD_OWN_FIELDS = 12, /* bytes of the header after which a writer may put its own */
    TOKEN_SHARD_MAX_TOKENS = INT32_MAX,
};

typedef struct token_shard {
    const unsigned char *tokens; /* not aligned */
    size_t n_tokens;
    int token_size; /* 2 or 4 bytes */
} token_shard;

/* Whether the bytes begin like a shard. */
bool token_shard_has_magic(const void *bytes, size_t size);
/* Parses a whole file: the count must fit its size exactly. `source` names it in messages. */
dsmoe_status token_shard_parse(const void *bytes, size_t size, const char *source,
                               token_shard *shard, dsmoe_error *error);
/* Parses only the header, of a file that may hold more after its tokens. */
dsmoe_status token_shard_parse_head(const void *bytes, size_t size, const char *source,
                                    token_shard *shard, dsmoe_error *error);

/* Can return any 32-bit number if tokens have four bytes. */
static inline uint32_t token_shard_token(const token_shard *shard, size_t index)
{
    if (shard->token_size == 2) {
        uint16_t token;
        memcpy(&token, shard->tokens + index * sizeof token, sizeof token);
        return token;
    }
    uint32_t token;
    memcpy(&token, shard->tokens + index * sizeof token, sizeof token);
    return token;
}

/* The index of the first token that is not below vocab_size; n_tokens if there is none. */
size_t token_shard_find_above(const token_shard *shard, int64_t vocab_size);

/* Bytes that tokens below vocab_size need. */
static inline int token_shard_size_for(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }
void token_shard_fill_header(unsigned char header[TOKEN_SHARD_HEADER_SIZE], int token_size,
                             int32_t n_tokens);
/* Writes n tokens to `out` as in a file: n * token_size bytes. */
void token_shard_pack(const int32_t *tokens, size_t n, int token_size, unsigned char *out);

#endif

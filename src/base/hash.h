/* hash.h - a 64-bit hash of content: two texts, files or rows of tokens with the same number are the
 * same for all practical purposes. It is XXH64 of libxxhash: fast (several gigabytes a second on one
 * thread) and made against accidents, not against an adversary. Numbers go into files, so a file says
 * which function its numbers are of. */
#ifndef DSMOE_BASE_HASH_H
#define DSMOE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash_old.h"

typedef enum hash_kind {
    HASH_XXH64, /* what is written */
    HASH_OLD,   /* in files of earlier versions */
} hash_kind;

/* A hash in the making. */
typedef struct hash_state {
    hash_kind kind;
    union {
        uint64_t xxh64[11]; /* an XXH64_state_t */
        hash_old_state old;
    };
} hash_state;

/* Another seed, another hash. */
void hash_begin(hash_state *h, uint64_t seed);
void hash_begin_as(hash_state *h, hash_kind kind, uint64_t seed);
/* However the bytes are divided among calls, the hash is the same. */
void hash_add(hash_state *h, const void *bytes, size_t size);
void hash_add_number(hash_state *h, uint64_t number);
uint64_t hash_end(const hash_state *h); /* more may be added after it */

/* All of the above for bytes that lie in one piece. */
uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed);
uint64_t hash_bytes_as(hash_kind kind, const void *bytes, size_t size, uint64_t seed);

#endif

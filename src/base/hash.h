/* hash.h - a 64-bit hash of content: texts, files or rows of tokens with the same hash are the same for all
 * practical purposes.
 *
 * It is XXH64 of libxxhash. That is fast (several gigabytes a second on one thread), and safe against
 * accidents but not against an adversary. Hashes are written to files, and these files say which function
 * made them. */
#ifndef DSMOE_BASE_HASH_H
#define DSMOE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash_old.h"

typedef enum hash_kind {
    HASH_XXH64, /* in files that this version writes */
    HASH_OLD,   /* in files of earlier versions */
} hash_kind;

/* A hash that is being computed. */
typedef struct hash_state {
    hash_kind kind;
    union {
        uint64_t xxh64[11]; /* an XXH64_state_t */
        hash_old_state old;
    };
} hash_state;

/* Begins a hash. Different seeds give different hashes. */
void hash_begin(hash_state *h, uint64_t seed);
void hash_begin_as(hash_state *h, hash_kind kind, uint64_t seed);
/* Adds bytes. The hash does not depend on how they are divided among calls. */
void hash_add(hash_state *h, const void *bytes, size_t size);
void hash_add_number(hash_state *h, uint64_t number);
uint64_t hash_end(const hash_state *h); /* more can be added afterwards */

/* The hash of bytes that are in one piece. */
uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed);
uint64_t hash_bytes_as(hash_kind kind, const void *bytes, size_t size, uint64_t seed);

#endif

/* hash.h - a 64-bit hash of content: two texts, files or rows of tokens with the same number are the
 * same for all practical purposes. It is fast (several gigabytes a second on one thread) and made
 * against accidents, not against an adversary: it is not cryptographic. Numbers go into files, so the
 * function never changes. */
#ifndef DSMOE_BASE_HASH_H
#define DSMOE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_LANES = 8, HASH_BLOCK = HASH_LANES * 8 };

/* A hash in the making. */
typedef struct hash_state {
    uint64_t lanes[HASH_LANES];
    uint64_t length;                 /* bytes so far */
    unsigned char block[HASH_BLOCK]; /* the last length % HASH_BLOCK of them */
} hash_state;

/* Another seed, another function. */
void hash_begin(hash_state *h, uint64_t seed);
/* However the bytes are divided among calls, the hash is the same. */
void hash_add(hash_state *h, const void *bytes, size_t size);
void hash_add_number(hash_state *h, uint64_t number);
uint64_t hash_end(const hash_state *h); /* more may be added after it */

/* All of the above for bytes that lie in one piece. */
uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed);

#endif

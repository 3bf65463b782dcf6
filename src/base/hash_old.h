/* hash_old.h - the hash in files of versions that did not use libxxhash. Such files can still be read. Only
 * hash.c calls these functions. */
#ifndef DSMOE_BASE_HASH_OLD_H
#define DSMOE_BASE_HASH_OLD_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_OLD_LANES = 8, HASH_OLD_BLOCK = HASH_OLD_LANES * 8 };

typedef struct hash_old_state {
    uint64_t lanes[HASH_OLD_LANES];
    uint64_t length;                     /* bytes so far */
    unsigned char block[HASH_OLD_BLOCK]; /* the last length % HASH_OLD_BLOCK of them */
} hash_old_state;

void hash_old_begin(hash_old_state *h, uint64_t seed);
void hash_old_add(hash_old_state *h, const void *bytes, size_t size);
uint64_t hash_old_end(const hash_old_state *h);

#endif

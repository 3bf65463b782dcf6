/* cache_keys.h - where the numbers of a key are within its group: see cache_kernels. */
#ifndef DSMOE_KERNELS_CACHE_KEYS_H
#define DSMOE_KERNELS_CACHE_KEYS_H

#include <string.h>

#include "kernels/blocks.h"

/* BLOCK columns of a group in Q8_0: as many bytes as KEY_GROUP blocks. */
typedef struct key_block_q8_0 {
    uint8_t d[KEY_GROUP][2];
    int8_t q[BLOCK][KEY_GROUP];
} key_block_q8_0;

/* BLOCK columns of a group are a chunk. Returns its bytes. */
static inline int64_t key_chunk_size(dsmoe_dtype type)
{
    return KEY_GROUP * dtype_bytes(type, BLOCK);
}

/* Copies n ≤ BLOCK consecutive numbers to the columns of key `at` in a chunk. */
static inline void key_scatter(dsmoe_dtype type, int64_t n, const unsigned char *numbers,
                               unsigned char *chunk, int at)
{
    if (type == DSMOE_Q8_0) {
        const block_q8_0 *from = (const block_q8_0 *)numbers;
        key_block_q8_0 *to = (key_block_q8_0 *)chunk;
        memcpy(to->d[at], from->d, sizeof from->d);
        for (int64_t k = 0; k < n; k++) to->q[k][at] = from->q[k];
        return;
    }
    const size_t size = (size_t)dtype_bytes(type, 1);
    for (int64_t k = 0; k < n; k++)
        memcpy(chunk + (size_t)(k * KEY_GROUP + at) * size, numbers + (size_t)k * size, size);
}

/* Narrows a whole key with the type's `narrow` and copies it to its group. */
static inline void key_put(dsmoe_dtype type, void (*narrow)(int64_t, const float *, void *),
                           int64_t width, const float *key, unsigned char *group, int at)
{
    for (int64_t k = 0; k < width; k += BLOCK, group += key_chunk_size(type)) {
        unsigned char numbers[BLOCK * sizeof(float)];
        int64_t n = width - k < BLOCK ? width - k : BLOCK;
        narrow(n, key + k, numbers);
        key_scatter(type, n, numbers, group, at);
    }
}

#endif

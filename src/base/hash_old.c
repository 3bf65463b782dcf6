/* hash_old.c - the hash in files of earlier versions. It must never change.
 *
 * Each of eight lanes takes every eighth word of the input, so that a processor can overlap eight
 * multiplications. A step is lane = rotate(lane ^ word) * odd. It can be undone, both for a given word and
 * for a given lane. So different words never lead a lane to the same value, and a difference never disappears
 * in later words. The multiplication carries differences to higher bits and the rotation brings them down
 * again. At the end, the length and the lanes are mixed, one after the other, in a function of all bits. */
#include "base/hash_old.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are little-endian");

#define STEP_FACTOR 0xd6e8feb86659fd93u
#define LANE_OFFSET 0x9e3779b97f4a7c15u

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

/* Every bit of the result depends on every bit of x; different x have different results. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * STEP_FACTOR;
    x = (x ^ x >> 29) * STEP_FACTOR;
    return x ^ x >> 32;
}

static void take_blocks(uint64_t lanes[HASH_OLD_LANES], const unsigned char *bytes, size_t n_blocks)
{
    uint64_t now[HASH_OLD_LANES];
    memcpy(now, lanes, sizeof now);
    for (; n_blocks > 0; n_blocks--, bytes += HASH_OLD_BLOCK)
        for (int i = 0; i < HASH_OLD_LANES; i++) {
            uint64_t word;
            memcpy(&word, bytes + (size_t)i * sizeof word, sizeof word);
            now[i] = rotate(now[i] ^ word, 29) * STEP_FACTOR;
        }
    memcpy(lanes, now, sizeof now);
}

void hash_old_begin(hash_old_state *h, uint64_t seed)
{
    *h = (hash_old_state){0};
    for (int i = 0; i < HASH_OLD_LANES; i++)
        h->lanes[i] = mix(mix(seed) + (uint64_t)(i + 1) * LANE_OFFSET);
}

void hash_old_add(hash_old_state *h, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    size_t waiting = h->length % HASH_OLD_BLOCK;
    h->length += size;
    if (waiting > 0) {
        size_t n = size < HASH_OLD_BLOCK - waiting ? size : HASH_OLD_BLOCK - waiting;
        if (n > 0) memcpy(h->block + waiting, next, n);
        if (waiting + n < HASH_OLD_BLOCK) return;
        take_blocks(h->lanes, h->block, 1);
        next += n;
        size -= n;
    }
    take_blocks(h->lanes, next, size / HASH_OLD_BLOCK);
    if (size % HASH_OLD_BLOCK > 0)
        memcpy(h->block, next + size / HASH_OLD_BLOCK * HASH_OLD_BLOCK, size % HASH_OLD_BLOCK);
}

uint64_t hash_old_end(const hash_old_state *h)
{
    uint64_t lanes[HASH_OLD_LANES], hash = mix(h->length + LANE_OFFSET);
    memcpy(lanes, h->lanes, sizeof lanes);
    size_t waiting = h->length % HASH_OLD_BLOCK;
    if (waiting > 0) { /* padded with zeros; the length tells them from zeros of the input */
        unsigned char block[HASH_OLD_BLOCK] = {0};
        memcpy(block, h->block, waiting);
        take_blocks(lanes, block, 1);
    }
    for (int i = 0; i < HASH_OLD_LANES; i++) hash = mix(hash ^ lanes[i]) + LANE_OFFSET;
    return hash;
}

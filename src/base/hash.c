/* hash.c - a 64-bit hash of content.
 *
 * Eight lanes take every eighth word of the input, so that a processor has eight multiplications to
 * overlap. One step, lane = rotate(lane ^ word) * odd, can be undone for a given word and for a given
 * lane: no two words lead a lane to the same value, and no difference dies out on its way through later
 * words. The multiplication carries differences upwards and the rotation brings them down again. At the
 * end the lanes and the length go one after the other through a mixing of all bits. */
#include "base/hash.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are little-endian");

#define STEP_FACTOR 0xd6e8feb86659fd93u
#define LANE_OFFSET 0x9e3779b97f4a7c15u

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

/* Every bit of x has its say in every bit of the result; no two x have the same one. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * STEP_FACTOR;
    x = (x ^ x >> 29) * STEP_FACTOR;
    return x ^ x >> 32;
}

static void take_blocks(uint64_t lanes[HASH_LANES], const unsigned char *bytes, size_t n_blocks)
{
    uint64_t now[HASH_LANES];
    memcpy(now, lanes, sizeof now);
    for (; n_blocks > 0; n_blocks--, bytes += HASH_BLOCK)
        for (int i = 0; i < HASH_LANES; i++) {
            uint64_t word;
            memcpy(&word, bytes + (size_t)i * sizeof word, sizeof word);
            now[i] = rotate(now[i] ^ word, 29) * STEP_FACTOR;
        }
    memcpy(lanes, now, sizeof now);
}

void hash_begin(hash_state *h, uint64_t seed)
{
    *h = (hash_state){0};
    for (int i = 0; i < HASH_LANES; i++)
        h->lanes[i] = mix(mix(seed) + (uint64_t)(i + 1) * LANE_OFFSET);
}

void hash_add(hash_state *h, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    size_t waiting = h->length % HASH_BLOCK;
    h->length += size;
    if (waiting > 0) {
        size_t n = size < HASH_BLOCK - waiting ? size : HASH_BLOCK - waiting;
        if (n > 0) memcpy(h->block + waiting, next, n);
        if (waiting + n < HASH_BLOCK) return;
        take_blocks(h->lanes, h->block, 1);
        next += n;
        size -= n;
    }
    take_blocks(h->lanes, next, size / HASH_BLOCK);
    if (size % HASH_BLOCK > 0)
        memcpy(h->block, next + size / HASH_BLOCK * HASH_BLOCK, size % HASH_BLOCK);
}

void hash_add_number(hash_state *h, uint64_t number) { hash_add(h, &number, sizeof number); }

uint64_t hash_end(const hash_state *h)
{
    uint64_t lanes[HASH_LANES], hash = mix(h->length + LANE_OFFSET);
    memcpy(lanes, h->lanes, sizeof lanes);
    size_t waiting = h->length % HASH_BLOCK;
    if (waiting > 0) { /* zeros fill it up: the length tells them from zeros of the input */
        unsigned char block[HASH_BLOCK] = {0};
        memcpy(block, h->block, waiting);
        take_blocks(lanes, block, 1);
    }
    for (int i = 0; i < HASH_LANES; i++) hash = mix(hash ^ lanes[i]) + LANE_OFFSET;
    return hash;
}

uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed)
{
    hash_state h;
    hash_begin(&h, seed);
    hash_add(&h, bytes, size);
    return hash_end(&h);
}

/* avx512_blocks.h - what the AVX-512 files for block types share: the forms of x and of an octet.
 *
 * A register has two lanes of 32 bits for each of eight rows. Two blocks of 32 columns are processed together
 * as a pair. The first lane of a row belongs to the first block, the second lane to the second. The scales of
 * two blocks of x are next to each other, so one broadcast of eight bytes brings them to all lanes. The q of
 * x have the same order: four columns of the first block of a pair, four of the second, and so on. A single
 * last block keeps its order. It has one lane for each row, in the lower half of a register.
 *
 * An octet is a sequence of stretches. A stretch begins with the numbers that each block or row has one of,
 * followed by its codes. 64 bytes of codes, a step, are four columns of each lane. So steps begin at cache
 * lines. */
#ifndef DSMOE_KERNELS_AVX512_BLOCKS_H
#define DSMOE_KERNELS_AVX512_BLOCKS_H

#include <string.h>

#include "kernels/avx512.h"
#include "kernels/blocks.h"

enum {
    ROWS = 8,          /* rows of x at a time, each with a sum of integers and one of floats */
    STEP = CACHE_LINE, /* bytes that are loaded at once */
    STEPS = BLOCK / 4, /* of a pair */
    PAIRS = BLOCK_STRETCH / BLOCK / 2, /* of a stretch */
    FIVE_STEPS = 5,                    /* registers with the codes of 5 bits of a pair */
    SIX_STEPS = 3, /* registers with the codes of 6 bits of one step of all pairs */
};

/* Small types: for each pair d, and for Q5_1 also m, as [8][2] float16. Then the codes:
 *   Q4_0        four steps, with those of the last four in the upper halves of bytes
 *   Q5_0, Q5_1  five steps, with the bits of the last three above them: see split_5
 * A single last block has [8] float16 and steps of half the size.
 *
 * Q8_0: d[8] for each block. Then for each block four steps of eight columns each, in the order of x: see
 * interleave_q8_0. */

/* Scales and minima of 6 bits. The scales and minima of four pairs take 48 bits in each lane: see
 * scales_of. */
typedef struct stretch_scales {
    uint16_t d[8][2]; /* d and dmin of each row */
    uint32_t first[16];
    uint16_t last[16];
} stretch_scales;

typedef struct stretch_q4_k {
    stretch_scales scales;
    uint8_t q[2][STEPS][STEP]; /* q[i]: pair 2i, and pair 2i + 1 in the upper halves of bytes */
} stretch_q4_k;

typedef struct stretch_q5_k {
    stretch_scales scales;
    uint8_t q[PAIRS][FIVE_STEPS][STEP];
} stretch_q5_k;

/* For each step: codes of the first three pairs, and above each of them two bits of the codes of the
 * fourth. */
typedef struct stretch_q6_k {
    uint8_t q[STEPS][SIX_STEPS][STEP];
} stretch_q6_k;

typedef struct scales_q6_k {
    int8_t scale[PAIRS][2][8][2]; /* [pair][half of the block][row][block of the pair] */
    uint16_t d[8];
} scales_q6_k;

/* Four stretches of Q6_K are a group; the last group of an octet may have fewer. A group begins with the
 * scales of all its stretches, followed by their codes. Otherwise codes would not begin at cache lines. */
enum { SIX_GROUP = 4 };

typedef struct place_q6_k {
    scales_q6_k *scales;
    stretch_q6_k *codes;
} place_q6_k;

/* Where a stretch is, in an octet of n stretches. */
INLINE place_q6_k place_of_q6_k(const void *octet, int64_t stretch, int64_t n)
{
    int64_t first = stretch / SIX_GROUP * SIX_GROUP, size = n - first;
    if (size > SIX_GROUP) size = SIX_GROUP;
    scales_q6_k *scales =
        (scales_q6_k *)((const char *)octet + first * BLOCK_OCTET * (int64_t)sizeof(block_q6_k));
    return (place_q6_k){scales + (stretch - first),
                        (stretch_q6_k *)(scales + size) + (stretch - first)};
}

/* Moves bit `from` of each byte to bit `to`, with all others, and then applies the mask to each byte. */
INLINE __m512i move_bits(__m512i v, const int from, const int to, const char mask)
{
    v = from < to   ? _mm512_slli_epi16(v, to - from)
        : from > to ? _mm512_srli_epi16(v, from - to)
                    : v;
    return _mm512_and_si512(v, _mm512_set1_epi8(mask));
}

INLINE __m512i low_halves(__m512i v) { return move_bits(v, 0, 0, 15); }
INLINE __m512i high_halves(__m512i v) { return move_bits(v, 4, 0, 15); }

typedef void block_interleave_fn(const unsigned char *const row[BLOCK_OCTET], int64_t k,
                                 void *octet);
block_interleave_fn interleave_q4_0_avx512, interleave_q5_0_avx512, interleave_q5_1_avx512,
    interleave_q8_0_avx512, interleave_q4_k_avx512, interleave_q5_k_avx512, interleave_q6_k_avx512;

#endif

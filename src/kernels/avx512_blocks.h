/* avx512_blocks.h - what the AVX-512 files for block types share: the forms of x and of an octet.
 *
 * A register has two lanes of 32 bits for each of eight rows. Two blocks of 32 columns, a pair, go
 * together: the first lane of a row belongs to the first of them, the second to the second, so that what
 * is one number for a block of x, and there are two of them side by side, meets all lanes with one
 * broadcast of eight bytes. The q of x lie for that: of a pair four columns of the first block, four of
 * the second, and so on. A last block alone lies as it is, and has one lane for each row: the lower half
 * of a register.
 *
 * An octet is a row of stretches. A stretch has first what is a number for each block or row, then its
 * codes: 64 bytes of them, a step, are four columns of each lane. So steps begin where cache lines do. */
#ifndef DSMOE_KERNELS_AVX512_BLOCKS_H
#define DSMOE_KERNELS_AVX512_BLOCKS_H

#include <string.h>

#include "kernels/avx512.h"
#include "kernels/blocks.h"

enum {
    ROWS = 8,          /* of x that go together: as many sums of integers, and of floats */
    STEP = CACHE_LINE, /* bytes that are loaded at once */
    STEPS = BLOCK / 4, /* of a pair */
    PAIRS = BLOCK_STRETCH / BLOCK / 2,
    FIVE_STEPS = 5, /* that hold the codes of 5 bits of a pair */
    SIX_STEPS = 3,  /* that hold the codes of 6 bits of one step of all pairs */
};

/* Small types: of each pair d, and of Q5_1 m as well, [8][2] float16; then codes:
 *   Q4_0        four steps, with those of the last four in the upper halves of bytes
 *   Q5_0, Q5_1  five, with those of the last three bit by bit above them: see split_5
 * A single last block has [8] float16 and steps of half the size.
 *
 * Q8_0: d[8] of each block, then four steps of eight columns each, in an order that suits x: see
 * quantize_fine. */

/* Scales and minima of 6 bits, four pairs of a lane in 48 bits: see scales_of. */
typedef struct stretch_scales {
    uint16_t d[8][2]; /* and dmin */
    uint32_t first[16];
    uint16_t last[16];
} stretch_scales;

typedef struct stretch_q4_k {
    stretch_scales scales;
    uint8_t q[2][STEPS][STEP]; /* pairs 2i, and 2i + 1 in the upper halves of bytes */
} stretch_q4_k;

typedef struct stretch_q5_k {
    stretch_scales scales;
    uint8_t q[PAIRS][FIVE_STEPS][STEP];
} stretch_q5_k;

/* Step by step, codes of the first three pairs, with two bits each of those of the fourth above them. */
typedef struct stretch_q6_k {
    uint8_t q[STEPS][SIX_STEPS][STEP];
} stretch_q6_k;

typedef struct scales_q6_k {
    int8_t scale[PAIRS][2][8][2]; /* of pair, half of a block, row and block */
    uint16_t d[8];
} scales_q6_k;

/* Four stretches of Q6_K are a group, the last of an octet maybe fewer: first the scales of all of them, then their
 * codes, which would not begin with cache lines otherwise. */
enum { SIX_GROUP = 4 };

typedef struct place_q6_k {
    scales_q6_k *scales;
    stretch_q6_k *codes;
} place_q6_k;

/* One of n stretches of an octet. */
INLINE place_q6_k place_of_q6_k(const void *octet, int64_t stretch, int64_t n)
{
    int64_t first = stretch / SIX_GROUP * SIX_GROUP, size = n - first;
    if (size > SIX_GROUP) size = SIX_GROUP;
    scales_q6_k *scales =
        (scales_q6_k *)((const char *)octet + first * BLOCK_OCTET * (int64_t)sizeof(block_q6_k));
    return (place_q6_k){scales + (stretch - first),
                        (stretch_q6_k *)(scales + size) + (stretch - first)};
}

/* The bits of `mask` in each byte, after bit `from` went to where bit `to` is. */
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

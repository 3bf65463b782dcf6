/* avx2_blocks.h - what the AVX2 files for block types share: the form of an octet.
 *
 * An octet is a row of records, one for each block of its type, with the blocks of eight rows. In a
 * record everything that is a number for each row is eight of them in a row, and of codes four bytes
 * of each row stand together, so that 32 bytes are the same four (or eight half) columns of all rows. */
#ifndef DSMOE_KERNELS_AVX2_BLOCKS_H
#define DSMOE_KERNELS_AVX2_BLOCKS_H

#include <string.h>

#include "kernels/avx2.h"
#include "kernels/blocks.h"

enum {
    AVX2_BLOCK_TILE_M = 4,
    STEP = 32,          /* bytes that are loaded at once: four bytes of each row */
    STEPS = BLOCK / 4,  /* of four columns in a block */
    N_SCALE_BYTES = 12, /* of Q4_K and Q5_K */
};

typedef struct octet_q4_0 {
    uint16_t d[8];
    uint8_t q[4][STEP]; /* columns 4s and 16 + 4s */
} octet_q4_0;

typedef struct octet_q5_0 {
    uint16_t d[8];
    uint8_t high[STEP]; /* bit s is the fifth bit of columns 4s */
    uint8_t q[4][STEP];
} octet_q5_0;

typedef struct octet_q8_0 {
    uint16_t d[8];
    uint8_t q[8][STEP];
} octet_q8_0;

typedef struct octet_q4_k {
    uint16_t d[8], dmin[8];
    uint8_t scales[N_SCALE_BYTES][8];
    uint8_t q[4][8][STEP]; /* columns 64i + 4s and 64i + 32 + 4s */
} octet_q4_k;

typedef struct octet_q5_k {
    uint16_t d[8], dmin[8];
    uint8_t scales[N_SCALE_BYTES][8];
    uint8_t high[8][STEP]; /* bit b of step s is the fifth bit of columns 32b + 4s */
    uint8_t q[4][8][STEP];
} octet_q5_k;

typedef struct octet_q6_k {
    uint16_t d[8];
    int8_t scales[8][8][2]; /* of part, row and half */
    /* Of each half and step: codes of the first three of four parts, with two bits each of those of the
     * fourth above them. So three need nothing but a mask. */
    uint8_t q[2][8][3][STEP];
} octet_q6_k;

/* Eight float16. */
INLINE __m256 octet_floats(const uint16_t at[8])
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

/* Scales and minima of part b of a Q4_K or Q5_K block, as whole numbers. */
typedef struct octet_scales {
    __m256 scale, min;
} octet_scales;

INLINE uint64_t eight_bytes(const uint8_t at[8])
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

INLINE __m256 eight_floats(uint64_t bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes)));
}

/* block_scale_min for eight rows. */
INLINE octet_scales octet_scales_of(const uint8_t scales[N_SCALE_BYTES][8], const int b)
{
    const uint64_t six = 0x3f3f3f3f3f3f3f3f, four = 0x0f0f0f0f0f0f0f0f, two = 0x3030303030303030;
    if (b < 4)
        return (octet_scales){eight_floats(eight_bytes(scales[b]) & six),
                              eight_floats(eight_bytes(scales[b + 4]) & six)};
    uint64_t low = eight_bytes(scales[b + 4]);
    return (octet_scales){eight_floats((low & four) | (eight_bytes(scales[b - 4]) >> 2 & two)),
                          eight_floats((low >> 4 & four) | (eight_bytes(scales[b]) >> 2 & two))};
}

/* Codes of two columns in a byte. */
INLINE __m256i low_halves(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
INLINE __m256i high_halves(__m256i v) { return low_halves(_mm256_srli_epi16(v, 4)); }

/* The bits of `mask` in each byte, after bit `from` went to where bit `to` is. */
INLINE __m256i move_bits(__m256i v, const int from, const int to, const char mask)
{
    v = from < to   ? _mm256_slli_epi16(v, to - from)
        : from > to ? _mm256_srli_epi16(v, from - to)
                    : v;
    return _mm256_and_si256(v, _mm256_set1_epi8(mask));
}

/* Four signed bytes of each row as pairs of words: columns 0 and 2, or 1 and 3. */
INLINE __m256i even_bytes(__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
INLINE __m256i odd_bytes(__m256i v) { return _mm256_srai_epi16(v, 8); }

INLINE __m256i load_step(const uint8_t at[STEP]) { return _mm256_loadu_si256((const __m256i *)at); }

/* Four columns of a row of x, as bytes, or two as words, for all lanes. */
INLINE __m256i x_step(const void *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Scales of Q6_K as words: of both halves of a part for each row; and of one half twice. */
INLINE __m256i octet_words(const int8_t scales[8][2])
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)scales));
}
INLINE __m256i octet_half(__m256i words, const int half)
{
    return half ? _mm256_blend_epi16(words, _mm256_srli_epi32(words, 16), 0x55)
                : _mm256_blend_epi16(words, _mm256_slli_epi32(words, 16), 0xaa);
}

/* Codes of one step of the four parts of a half of a Q6_K block, below 64. */
INLINE void octet_codes_q6_k(const octet_q6_k *o, const int half, const int s, __m256i code[4])
{
    const __m256i six = _mm256_set1_epi8(63);
    __m256i a = load_step(o->q[half][s][0]), b = load_step(o->q[half][s][1]);
    __m256i c = load_step(o->q[half][s][2]);
    code[0] = _mm256_and_si256(a, six);
    code[1] = _mm256_and_si256(b, six);
    code[2] = _mm256_and_si256(c, six);
    code[3] = _mm256_or_si256(_mm256_or_si256(move_bits(a, 6, 0, 3), move_bits(b, 6, 2, 12)),
                              move_bits(c, 6, 4, 48));
}

void quantize_avx2(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);
void gather_avx2(block_form form, int64_t n, const int8_t *q, void *to);

/* By dsmoe_dtype: see block_kernels. */
extern const block_kernels blocks_avx2[N_DTYPES];

typedef void block_interleave_fn(const unsigned char *const row[BLOCK_OCTET], int64_t k,
                                 void *octet);
block_interleave_fn block_interleave_q4_0_avx2, block_interleave_q5_0_avx2,
    block_interleave_q8_0_avx2, block_interleave_q4_k_avx2, block_interleave_q5_k_avx2,
    block_interleave_q6_k_avx2;
typedef void block_row_fn(block_row x, const void *octets, int64_t n, int64_t k, float *y);
block_row_fn block_row_q4_0_avx2, block_row_q5_0_avx2, block_row_q8_0_avx2, block_row_q4_k_avx2,
    block_row_q5_k_avx2, block_row_q6_k_avx2;

#endif

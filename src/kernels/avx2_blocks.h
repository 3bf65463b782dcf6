/* avx2_blocks.h - what the AVX2 files for block types share: the form of an octet.
 *
 * An octet is a sequence of records. Each record has one block of each of the eight rows. A number that each
 * row has one of, such as d, is stored as eight consecutive numbers. Codes are stored with four bytes of each
 * row together, so that 32 bytes are the same four columns (eight, if codes are half bytes) of all rows. */
#ifndef DSMOE_KERNELS_AVX2_BLOCKS_H
#define DSMOE_KERNELS_AVX2_BLOCKS_H

#include <string.h>

#include "kernels/avx2.h"
#include "kernels/blocks.h"

enum {
    AVX2_BLOCK_ROWS = 8, /* rows of x at a time; their sums fill half of the registers */
    STEP = 32,           /* bytes that are loaded at once: four bytes of each row */
    STEPS = BLOCK / 4,   /* of four columns, in a block */
    STRETCH_BLOCKS = BLOCK_STRETCH / BLOCK,
};

typedef struct octet_q4_0 {
    uint16_t d[8];
    uint8_t q[4][STEP]; /* columns 4s and 16 + 4s */
} octet_q4_0;

/* Codes of 5 bits: those of the first five steps, with the bits of the last three above them. So most codes
 * need only a mask. */
typedef uint8_t codes_5[5][STEP];

typedef struct octet_q5_0 {
    uint16_t d[8];
    codes_5 q;
} octet_q5_0;

typedef struct octet_q5_1 {
    uint16_t d[8], m[8];
    codes_5 q;
} octet_q5_1;

/* A stretch. All scales come first, because none can be used before the largest is known. If the last stretch
 * of a row has fewer than STRETCH_BLOCKS blocks, its codes begin after the scales that it has. */
typedef struct octet_q8_0 {
    uint16_t d[STRETCH_BLOCKS][8];
    uint8_t q[STRETCH_BLOCKS][STEPS][STEP];
} octet_q8_0;

/* The 12 bytes of scales and minima of each row. */
typedef uint8_t packed_scales[3][STEP];

typedef struct octet_q4_k {
    uint16_t d[8], dmin[8];
    packed_scales scales;
    uint8_t q[4][8][STEP]; /* columns 64i + 4s and 64i + 32 + 4s */
} octet_q4_k;

typedef struct octet_q5_k {
    uint16_t d[8], dmin[8];
    packed_scales scales;
    codes_5 q[8]; /* the codes of each part */
} octet_q5_k;

typedef struct octet_q6_k {
    uint16_t d[8];
    int8_t scales[8][8][2]; /* [part][row][half of the part] */
    /* For each half and step: codes of the first three of four parts, and above each of them two bits of the
     * codes of the fourth. So three parts need only a mask. */
    uint8_t q[2][8][3][STEP];
} octet_q6_k;

/* Loads eight float16. */
INLINE __m256 octet_floats(const uint16_t at[8])
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

/* Loads a step into a register. Without KEEP_ORDER a compiler would read it again for each use, which
 * takes longer. */
INLINE __m256i load_step(const uint8_t at[STEP])
{
    __m256i step = _mm256_loadu_si256((const __m256i *)at);
    KEEP_ORDER(step);
    return step;
}

/* The two codes in each byte. */
INLINE __m256i low_halves(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
INLINE __m256i high_halves(__m256i v) { return low_halves(_mm256_srli_epi16(v, 4)); }

/* Moves bit `from` of each byte to bit `to`, with all others, and then applies the mask to each byte. */
INLINE __m256i move_bits(__m256i v, const int from, const int to, const char mask)
{
    v = from < to   ? _mm256_slli_epi16(v, to - from)
        : from > to ? _mm256_srli_epi16(v, from - to)
                    : v;
    return _mm256_and_si256(v, _mm256_set1_epi8(mask));
}

/* Splits the codes of all steps; they are below 32. */
INLINE void octet_codes_5(const codes_5 q, __m256i code[STEPS])
{
    __m256i v[5];
    UNROLL
    for (int i = 0; i < 5; i++) {
        v[i] = load_step(q[i]);
        code[i] = _mm256_and_si256(v[i], _mm256_set1_epi8(31));
    }
    UNROLL
    for (int i = 0; i < 3; i++) code[5 + i] = move_bits(v[i], 5, 0, 7);
    code[5] = _mm256_or_si256(code[5], move_bits(v[3], 6, 3, 24));
    code[6] = _mm256_or_si256(code[6], move_bits(v[4], 6, 3, 24));
    code[7] = _mm256_or_si256(code[7], move_bits(v[3], 5, 3, 8));
    code[7] = _mm256_or_si256(code[7], move_bits(v[4], 5, 4, 16));
}

/* Scales and minima of Q4_K and Q5_K, a byte each: of parts 0 to 3, then of 4 to 7. Each lane has the four
 * bytes of its row. */
typedef struct octet_scales {
    __m256i scale[2], min[2];
} octet_scales;

/* block_scale_min for eight rows and all parts. */
INLINE octet_scales octet_scales_of(const packed_scales packed)
{
    __m256i a = load_step(packed[0]), b = load_step(packed[1]), c = load_step(packed[2]);
    const __m256i six = _mm256_set1_epi8(63);
    return (octet_scales){.scale = {_mm256_and_si256(a, six),
                                    _mm256_or_si256(low_halves(c), move_bits(a, 6, 4, 0x30))},
                          .min = {_mm256_and_si256(b, six),
                                  _mm256_or_si256(high_halves(c), move_bits(b, 6, 4, 0x30))}};
}

/* The scales of a part as words, each twice, since a row has two words of products. */
INLINE __m256i part_scales(const octet_scales *of, const int part)
{
    const int p = part % 4;
    const __m256i twice = _mm256_setr_epi8(
        p, -1, p, -1, 4 + p, -1, 4 + p, -1, 8 + p, -1, 8 + p, -1, 12 + p, -1, 12 + p, -1, /**/
        p, -1, p, -1, 4 + p, -1, 4 + p, -1, 8 + p, -1, 8 + p, -1, 12 + p, -1, 12 + p, -1);
    return _mm256_shuffle_epi8(of->scale[part / 4], twice);
}

INLINE __m256 part_minima(const octet_scales *of, const int part)
{
    const int p = part % 4;
    const __m256i once = _mm256_setr_epi8(
        p, -1, -1, -1, 4 + p, -1, -1, -1, 8 + p, -1, -1, -1, 12 + p, -1, -1, -1, /**/
        p, -1, -1, -1, 4 + p, -1, -1, -1, 8 + p, -1, -1, -1, 12 + p, -1, -1, -1);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(of->min[part / 4], once));
}

/* The codes of block b in a stretch of n_blocks. */
INLINE const uint8_t *octet_codes_q8_0(const octet_q8_0 *o, int n_blocks, int b)
{
    return (const uint8_t *)o->d[n_blocks] + b * (STEPS * STEP);
}

/* The factors by which the codes of each block are multiplied, twice for each row. Returns the largest
 * scales. */
INLINE __m256 octet_factors(const octet_q8_0 *o, const int n_blocks, __m256i factor[STRETCH_BLOCKS])
{
    __m256i largest = _mm256_setzero_si256(); /* as bits: see `largest` in avx2_blocks.c */
    UNROLL
    for (int b = 0; b < STRETCH_BLOCKS; b++) {
        if (b >= n_blocks) break;
        __m256i bits = _mm256_castps_si256(octet_floats(o->d[b]));
        largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    __m256 scale = _mm256_castsi256_ps(largest);
    __m256 inverse = _mm256_div_ps(_mm256_set1_ps(FINE_FACTOR), scale);
    UNROLL
    for (int b = 0; b < STRETCH_BLOCKS; b++) {
        if (b >= n_blocks) break;
        /* A NaN becomes 1 << 31; its lower half, the factor, is 0. */
        __m256i part = _mm256_cvtps_epi32(_mm256_mul_ps(octet_floats(o->d[b]), inverse));
        factor[b] = _mm256_blend_epi16(part, _mm256_slli_epi32(part, 16), 0xaa);
    }
    return scale;
}

/* Codes times factors, as pairs of words: columns 0 and 2 of each four, or 1 and 3. */
INLINE __m256i fine_even(__m256i codes, __m256i factor)
{
    return _mm256_mulhrs_epi16(_mm256_slli_epi16(codes, 8), factor);
}
INLINE __m256i fine_odd(__m256i codes, __m256i factor)
{
    __m256i odd = _mm256_and_si256(codes, _mm256_set1_epi16((short)0xff00));
    return _mm256_mulhrs_epi16(odd, factor);
}

/* Copies four bytes of a row of x, which are four columns or (as words) two, to all lanes. */
INLINE __m256i x_step(const void *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Scales of a part of Q6_K as words: octet_words has those of both halves for each row, octet_half those of
 * one half twice. */
INLINE __m256i octet_words(const int8_t scales[8][2])
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)scales));
}
INLINE __m256i octet_half(__m256i words, const int half)
{
    const int h = 2 * half;
    const __m256i twice =
        _mm256_setr_epi8(h, h + 1, h, h + 1, h + 4, h + 5, h + 4, h + 5, h + 8, h + 9, h + 8, h + 9,
                         h + 12, h + 13, h + 12, h + 13, h, h + 1, h, h + 1, h + 4, h + 5, h + 4,
                         h + 5, h + 8, h + 9, h + 8, h + 9, h + 12, h + 13, h + 12, h + 13);
    return _mm256_shuffle_epi8(words, twice);
}

/* One step of the four parts of a half of a Q6_K block. octet_codes_q6_k splits off the codes of one part,
 * below 64. */
typedef struct step_q6_k {
    __m256i v[3];
} step_q6_k;

INLINE step_q6_k octet_step_q6_k(const octet_q6_k *o, const int half, const int s)
{
    return (step_q6_k){
        {load_step(o->q[half][s][0]), load_step(o->q[half][s][1]), load_step(o->q[half][s][2])}};
}

INLINE __m256i octet_codes_q6_k(step_q6_k step, const int part)
{
    if (part < 3) return _mm256_and_si256(step.v[part], _mm256_set1_epi8(63));
    __m256i low = _mm256_or_si256(move_bits(step.v[0], 6, 0, 3), move_bits(step.v[1], 6, 2, 12));
    return _mm256_or_si256(low, move_bits(step.v[2], 6, 4, 48));
}

/* ---- adding up blocks -----------------------------------------------------------------------------
 *
 * For any number of rows of x, the same functions are called in the same order, so that a row has the same
 * bits with and without other rows. */

/* Adds a block of a small type: sum + d·(scale_x·dot - zero·sum_x), where `zero` is the code of 0. */
INLINE __m256 add_block(__m256 sum, __m256i dot, __m256 d, const int zero, const float *x_scale,
                        const float *x_sum)
{
    __m256 scale = _mm256_broadcast_ss(x_scale), value = _mm256_cvtepi32_ps(dot);
    if (zero) {
        __m256 offset = _mm256_mul_ps(_mm256_broadcast_ss(x_sum), _mm256_set1_ps((float)-zero));
        value = _mm256_fmadd_ps(value, scale, offset);
    } else
        value = _mm256_mul_ps(value, scale);
    return _mm256_fmadd_ps(value, d, sum);
}

/* Adds a stretch of BLOCK_FINE. */
INLINE __m256 add_stretch(__m256 sum, __m256i dot, __m256 largest, const float *x_scale)
{
    __m256 scale = _mm256_mul_ps(largest, _mm256_set1_ps(1.0f / FINE_ONE));
    return add_block(sum, dot, scale, 0, x_scale, NULL);
}

/* Adds a part of a large type. `dot` has been multiplied by its scale. */
INLINE __m256 add_part(__m256 sum, __m256i dot, const float *x_scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(x_scale), sum);
}

/* Adds min·sum_x. */
INLINE __m256 add_minimum(__m256 sum, __m256 min, const float *x_sum)
{
    return _mm256_fmadd_ps(min, _mm256_broadcast_ss(x_sum), sum);
}

/* Adds a block of Q4_K or Q5_K, from the sums of its parts and minima. */
INLINE __m256 add_parts(__m256 sum, __m256 parts, __m256 d, __m256 minima, __m256 dmin)
{
    return _mm256_fnmadd_ps(minima, dmin, _mm256_fmadd_ps(parts, d, sum));
}

void quantize_avx2(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);
void quantize_fine_avx2(int64_t n, const float *x, int16_t *q, float *scale);

/* By dsmoe_dtype: see block_kernels. */
extern const block_kernels blocks_avx2[N_DTYPES];

typedef void block_interleave_fn(const unsigned char *const row[BLOCK_OCTET], int64_t k,
                                 void *octet);
block_interleave_fn block_interleave_q4_0_avx2, block_interleave_q5_0_avx2,
    block_interleave_q5_1_avx2, block_interleave_q8_0_avx2, block_interleave_q4_k_avx2,
    block_interleave_q5_k_avx2, block_interleave_q6_k_avx2;

#endif

/* avx512_block_sums.h - products of rows of x with the codes of an octet: the parts of x, codes split into
 * bytes, and sums of integers. The number of rows must be a constant for the compiler. */
#ifndef DSMOE_KERNELS_AVX512_BLOCK_SUMS_H
#define DSMOE_KERNELS_AVX512_BLOCK_SUMS_H

#include "kernels/avx512_blocks.h"

enum { HALVES = 2 * PAIRS * 2 }; /* halves of blocks in a stretch */

/* Prefetches lines in the order of their addresses. Call it if they will be read in another order: the
 * processor prefetches by itself only while a stream of lines is sequential, and otherwise memory is half as
 * fast. */
INLINE void ask_in_order(const void *from, const void *end)
{
    for (const char *line = from; line < (const char *)end; line += CACHE_LINE)
        _mm_prefetch(line, _MM_HINT_T0);
}

/* ---- the parts of x ---------------------------------------------------------------------------- */

/* Copies eight bytes (single: four) to all lanes, straight from memory: that uses none of the arithmetic
 * ports. */
INLINE __m512i spread(const void *at, const bool single)
{
    int32_t four;
    if (!single) return _mm512_broadcastq_epi64(_mm_loadl_epi64(at));
    memcpy(&four, at, sizeof four);
    return _mm512_set1_epi32(four);
}

/* The q for step s of the pair that begins with block b, or of that single block. */
INLINE __m512i x_step(const block_x *x, const int i, int64_t b, const int s, const bool single)
{
    return spread(x->row[i] + b * BLOCK + (single ? 4 : 8) * s, single);
}

/* The floats of the two blocks of a pair, or of a single block. */
INLINE __m512 x_floats(const char *at, const bool single)
{
    return _mm512_castsi512_ps(spread(at, single));
}
INLINE __m512 x_scale(const block_x *x, const int i, int64_t b, const bool single)
{
    return x_floats(x->row[i] + x->scale + b * (int64_t)sizeof(float), single);
}
INLINE __m512 x_sum(const block_x *x, const int i, int64_t b, const bool single)
{
    return x_floats(x->row[i] + x->sum + b * (int64_t)sizeof(float), single);
}

/* What sums of integers begin with: -zero·Σ q, where `zero` is the code of 0. There is one for each block, in
 * their order. If halves of blocks have their own scales, there is one for each half: of each pair first
 * those of the first halves of both blocks, then those of the second. */
typedef struct offsets {
    int32_t of[ROWS][HALVES];
} offsets;

INLINE __m512i x_offset(const offsets *o, const int i, int at, const bool single)
{
    return spread(&o->of[i][at], single);
}

INLINE const char *half_sums(const block_x *x, const int i, int64_t b)
{
    return x->row[i] + x->half_sum + b * 2 * (int64_t)sizeof(int16_t);
}

/* The offsets of n blocks, beginning with block b. */
INLINE void block_offsets(const int m, const block_x *x, int64_t b, int64_t n, const int zero,
                          offsets *to)
{
    const __mmask16 there = (__mmask16)((1u << 2 * n) - 1);
    UNROLL
    for (int i = 0; i < m; i++) {
        __m256i halves = _mm256_maskz_loadu_epi16(there, half_sums(x, i, b));
        __m256i sums = _mm256_madd_epi16(halves, _mm256_set1_epi16((short)-zero));
        _mm256_storeu_si256((__m256i *)to->of[i], sums);
    }
}

/* The offsets of the halves of a whole stretch; `zero` is 1 << log_zero. */
INLINE void half_offsets(const int m, const block_x *x, int64_t b, const int log_zero, offsets *to)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m256i halves = _mm256_loadu_si256((const __m256i *)half_sums(x, i, b));
        __m512i wide = _mm512_slli_epi32(_mm512_cvtepi16_epi32(halves), log_zero);
        wide = _mm512_shuffle_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), wide), 0xd8);
        _mm512_storeu_si512(to->of[i], wide);
    }
}

/* ---- codes ------------------------------------------------------------------------------------- */

/* Loads 64 bytes of codes, or 32 of a single block. */
INLINE __m512i load_step(const uint8_t *at, const bool single)
{
    if (single) return _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_loadu_si512(at);
}

/* Bits of `a` where the mask has ones, and of `b` elsewhere. */
INLINE __m512i choose(__m512i a, __m512i b, const char mask)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(mask), a, b, 0xca);
}

/* Splits codes of 5 bits: those of the last three steps are above those of the first five. */
INLINE void split_5(const uint8_t *at, const bool single, __m512i code[STEPS])
{
    __m512i v[FIVE_STEPS];
    UNROLL
    for (int i = 0; i < FIVE_STEPS; i++) {
        v[i] = load_step(at + i * (single ? STEP / 2 : STEP), single);
        code[i] = move_bits(v[i], 0, 0, 31);
    }
    UNROLL
    for (int i = 0; i < 2; i++)
        code[5 + i] = choose(_mm512_srli_epi16(v[i], 5), move_bits(v[3 + i], 6, 3, 24), 7);
    __m512i top = choose(move_bits(v[3], 5, 3, 8), move_bits(v[4], 5, 4, 16), 8);
    code[7] = choose(_mm512_srli_epi16(v[2], 5), top, 7);
}

/* The codes of 6 bits of a pair in step s. */
INLINE __m512i split_6(const stretch_q6_k *w, const int pair, const int s)
{
    if (pair < SIX_STEPS) return move_bits(load_step(w->q[s][pair], false), 0, 0, 63);
    __m512i a = load_step(w->q[s][0], false), b = load_step(w->q[s][1], false);
    __m512i c = load_step(w->q[s][2], false);
    __m512i low = choose(_mm512_srli_epi16(a, 6), _mm512_srli_epi16(b, 4), 3);
    return move_bits(choose(low, _mm512_srli_epi16(c, 2), 15), 0, 0, 63);
}

/* ---- sums ------------------------------------------------------------------------------------- */

INLINE void no_sums(const int m, __m512 sums[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++) sums[i] = _mm512_setzero_ps();
}
INLINE void no_dots(const int m, __m512i *dot)
{
    UNROLL
    for (int i = 0; i < m; i++) dot[i] = _mm512_setzero_si512();
}

/* Adds step s for m rows of x. */
INLINE void add_step(const int m, const block_x *x, int64_t b, const int s, const bool single,
                     __m512i codes, __m512i dot[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++)
        dot[i] = _mm512_dpbusd_epi32(dot[i], codes, x_step(x, i, b, s, single));
}

/* The sum of the two lanes of each row. */
INLINE __m256 fold_lanes(__m512 v)
{
    __m512 sums = _mm512_add_ps(v, _mm512_movehdup_ps(v));
    return _mm512_castps512_ps256(_mm512_maskz_compress_ps(0x5555, sums));
}

#endif

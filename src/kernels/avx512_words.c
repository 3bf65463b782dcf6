/* avx512_words.c - backward through weights of block types: products of words, two terms of the sum in a
 * lane.
 *
 * The words of 32 columns have one scale, which comes from the largest number that the scales of the blocks
 * allow. So only these scales have to be read before codes are converted to words.
 *
 * For each group of 32 columns, a panel has [sum/2][32] pairs of words. Of each four rows, 0 and 2 are a
 * pair, and 1 and 3 are one: quantize_fine stores the other operand in that order. The tile is 14×32 as with
 * floats, with twice the terms. */
#include <string.h>

#include "kernels/avx512.h"

enum {
    TILE_M = AVX512_TILE_M,
    TILE_N = AVX512_TILE_N,
    WIDE = 16,  /* lanes of a register */
    MOST = 256, /* the most columns that are packed together */
};

/* ---- weights in words -------------------------------------------------------------------------- */

/* `factor` converts the numbers of 32 columns to words, `scale` converts words back. Columns whose numbers
 * are nearly 0 or not finite become zeros; if they are not finite, neither is the scale. */
typedef struct word_scale {
    float factor, scale;
} word_scale;

INLINE word_scale scale_of(uint32_t bits)
{
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return (word_scale){largest > 1e-30f ? WORD_TOP / largest : 0.0f, largest / WORD_TOP};
}

INLINE __m512i rounded(const float *x, __m512 factor)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
}

/* 16 columns of two rows, as pairs of words. */
INLINE __m512i pair_of(const float *first, const float *second, __m512 factor)
{
    __m512i high = _mm512_slli_epi32(rounded(second, factor), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, rounded(first, factor), high);
}

/* Packs four rows. `panel` is their place in the first group of columns; the groups are `apart` words
 * apart. */
INLINE void pack_four(const float wide[4][MOST], int64_t n, const word_scale *scales, int64_t apart,
                      int16_t *panel)
{
    for (int64_t j = 0; j < n; j += TILE_N, panel += apart) {
        const __m512 factor = _mm512_set1_ps(scales[j / TILE_N].factor);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int first = i / 2, at = i % 2 * WIDE;
            __m512i pair = pair_of(wide[first] + j + at, wide[first + 2] + j + at, factor);
            _mm512_storeu_si512(panel + i * TILE_N, pair);
        }
    }
}

static void pack_words(widen_fn *widen, matrix w, int64_t column, int64_t sum, int64_t n,
                       int16_t *panel, float *scale)
{
    uint32_t largest[MOST / TILE_N] = {0};
    word_scale scales[MOST / TILE_N];
    float wide[4][MOST];
    for (int64_t r = 0; r < sum; r++) largest_avx512(w.type, n, matrix_at(w, r, column), largest);
    for (int64_t j = 0; j < n; j++) {
        if (j % TILE_N == 0) scales[j / TILE_N] = scale_of(largest[j / TILE_N]);
        scale[j] = scales[j / TILE_N].scale;
    }
    for (int64_t r = 0; r < sum; r += 4, panel += 4 * TILE_N) {
        for (int i = 0; i < 4; i++) {
            if (r + i < sum)
                widen(n, matrix_at(w, r + i, column), wide[i]);
            else
                memset(wide[i], 0, sizeof wide[i]);
        }
        pack_four(wide, n, scales, (sum + 3) / 4 * 4 * TILE_N, panel);
    }
}

/* ---- the tile ---------------------------------------------------------------------------------- */

INLINE void add_to(float *c, bool accumulate, const int32_t *sum, __m512 scale)
{
    __m512 before = accumulate ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    __m512 numbers = _mm512_cvtepi32_ps(_mm512_loadu_si512(sum));
    _mm512_storeu_ps(c, _mm512_fmadd_ps(numbers, scale, before));
}

/* Copies two words of a row to all lanes. */
INLINE __m512i spread(const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_set1_epi32(both);
}

/* Computes the first `height` rows of a tile and stores m of them. */
INLINE void tile_of(const int height, int64_t sum, const word_row *a, const int16_t *panel,
                    const float *scale, float *c, int64_t ldc, bool accumulate, int m)
{
    __m512i sums[TILE_M][2];
    UNROLL
    for (int i = 0; i < height; i++) sums[i][0] = sums[i][1] = _mm512_setzero_si512();
    for (int i = 0; i < m; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + WIDE), _MM_HINT_T0);
    }
    NO_UNROLL
    for (int64_t k = 0; k < sum; k += 2, panel += 2 * TILE_N) {
        __m512i b0 = _mm512_loadu_si512(panel), b1 = _mm512_loadu_si512(panel + TILE_N);
        UNROLL
        for (int i = 0; i < height; i++) {
            __m512i ai = spread(a[i].q + k);
            sums[i][0] = _mm512_dpwssd_epi32(sums[i][0], ai, b0);
            sums[i][1] = _mm512_dpwssd_epi32(sums[i][1], ai, b1);
        }
    }
    /* Stores all sums from registers. Otherwise the compiler would keep copies of rows that may not count
     * in the loop. */
    int32_t all[TILE_M][TILE_N];
    UNROLL
    for (int i = 0; i < height; i++) {
        _mm512_storeu_si512(all[i], sums[i][0]);
        _mm512_storeu_si512(all[i] + WIDE, sums[i][1]);
    }
    const __m512 s0 = _mm512_loadu_ps(scale), s1 = _mm512_loadu_ps(scale + WIDE);
    for (int i = 0; i < m; i++) {
        const __m512 row = _mm512_set1_ps(a[i].scale);
        add_to(c + i * ldc, accumulate, all[i], _mm512_mul_ps(row, s0));
        add_to(c + i * ldc + WIDE, accumulate, all[i] + WIDE, _mm512_mul_ps(row, s1));
    }
}

/* If m is odd, one row after the last of `a` is read too; its result is not stored. */
static void word_tile(int64_t sum, const word_row *a, const int16_t *panel, const float *scale,
                      float *c, int64_t ldc, bool accumulate, int m)
{
    switch ((m + 1) / 2) {
    case 1: tile_of(2, sum, a, panel, scale, c, ldc, accumulate, m); break;
    case 2: tile_of(4, sum, a, panel, scale, c, ldc, accumulate, m); break;
    case 3: tile_of(6, sum, a, panel, scale, c, ldc, accumulate, m); break;
    case 4: tile_of(8, sum, a, panel, scale, c, ldc, accumulate, m); break;
    case 5: tile_of(10, sum, a, panel, scale, c, ldc, accumulate, m); break;
    case 6: tile_of(12, sum, a, panel, scale, c, ldc, accumulate, m); break;
    default: tile_of(TILE_M, sum, a, panel, scale, c, ldc, accumulate, m); break;
    }
}

const word_kernels words_avx512 = {
    .tile_m = TILE_M, .tile_n = TILE_N, .pack = pack_words, .tile = word_tile};

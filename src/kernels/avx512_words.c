/* avx512_words.c - backward through weights in blocks: products of words, two terms of the sum in a lane.
 *
 * A panel has, of each group of 32 columns, [sum/2][32] pairs of words. Of four rows 0 and 2 are a pair, and 1 and 3:
 * in that order quantize_fine leaves the other side. Tile 14×32 as with floats, at twice the terms. */
#include <string.h>

#include "kernels/avx512.h"

enum {
    TILE_M = AVX512_TILE_M,
    TILE_N = AVX512_TILE_N,
    WIDE = 16,  /* lanes of a register */
    MOST = 256, /* columns that are packed together */
};

/* ---- weights in words -------------------------------------------------------------------------- */

/* Rows as float32, group by group, [n/TILE_N][filled][TILE_N], and the largest of each column: of numbers without their
 * signs the order is that of their bits, and a NaN is the largest of all. */
INLINE void widen_rows(widen_fn *widen, matrix w, int64_t column, int64_t sum, int64_t filled,
                       int64_t n, float *wide, float largest[MOST])
{
    const __m512i no_sign = _mm512_set1_epi32(INT32_MAX);
    float row[MOST];
    memset(largest, 0, (size_t)n * sizeof *largest);
    for (int64_t r = 0; r < sum; r++) {
        widen(n, matrix_at(w, r, column), row);
        for (int64_t j = 0; j < n; j += WIDE) {
            __m512i v = _mm512_loadu_si512(row + j), most = _mm512_loadu_si512(largest + j);
            most = _mm512_max_epu32(most, _mm512_and_si512(v, no_sign));
            _mm512_storeu_si512(largest + j, most);
            _mm512_storeu_si512(wide + j / TILE_N * TILE_N * filled + r * TILE_N + j % TILE_N, v);
        }
    }
    for (int64_t j = 0; j < n; j += TILE_N)
        memset(wide + j * filled + sum * TILE_N, 0,
               (size_t)((filled - sum) * TILE_N) * sizeof *wide);
}

/* What brings 16 columns into words: 0 for columns of nearly nothing, and for those that are not finite. */
INLINE __m512 factor_of(__m512 largest)
{
    const __m512 top = _mm512_set1_ps(WORD_TOP), least = _mm512_set1_ps(1e-30f);
    return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(largest, least, _CMP_GT_OQ), top, largest);
}

INLINE __m512i rounded(const float *x, __m512 factor)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
}

/* 16 columns of two rows. */
INLINE __m512i pair_of(const float *first, const float *second, __m512 factor)
{
    __m512i high = _mm512_slli_epi32(rounded(second, factor), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, rounded(first, factor), high);
}

static void pack_words(widen_fn *widen, matrix w, int64_t column, int64_t sum, int64_t n,
                       float *wide, int16_t *panel, float *scale)
{
    int64_t filled = (sum + 3) / 4 * 4;
    float largest[MOST];
    widen_rows(widen, w, column, sum, filled, n, wide, largest);
    for (int64_t j = 0; j < n; j += WIDE) {
        const __m512 most = _mm512_loadu_ps(largest + j), factor = factor_of(most);
        const float *from = wide + j / TILE_N * TILE_N * filled + j % TILE_N;
        int16_t *to = panel + j / TILE_N * TILE_N * filled + j % TILE_N * 2;
        _mm512_storeu_ps(scale + j, _mm512_mul_ps(most, _mm512_set1_ps(1.0f / WORD_TOP)));
        for (int64_t r = 0; r < filled; r += 4, from += 4 * TILE_N, to += 4 * TILE_N) {
            _mm512_storeu_si512(to, pair_of(from, from + 2 * TILE_N, factor));
            _mm512_storeu_si512(to + 2 * TILE_N, pair_of(from + TILE_N, from + 3 * TILE_N, factor));
        }
    }
}

/* ---- the tile ---------------------------------------------------------------------------------- */

INLINE void add_to(float *c, bool accumulate, __m512i sum, __m512 scale)
{
    __m512 before = accumulate ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, before));
}

/* Two words of a row for all lanes. */
INLINE __m512i spread(const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_set1_epi32(both);
}

/* The first `height` rows of a tile, of which m count. */
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
    const __m512 s0 = _mm512_loadu_ps(scale), s1 = _mm512_loadu_ps(scale + WIDE);
    UNROLL
    for (int i = 0; i < height; i++) {
        if (i == m) break;
        const __m512 row = _mm512_set1_ps(a[i].scale);
        add_to(c + i * ldc, accumulate, sums[i][0], _mm512_mul_ps(row, s0));
        add_to(c + i * ldc + WIDE, accumulate, sums[i][1], _mm512_mul_ps(row, s1));
    }
}

/* Rows of `a` after the last one are read up to an even number of them, and do not count. */
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

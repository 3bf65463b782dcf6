/* avx2_latent.c - latents of every type of a cache, for AVX2, FMA and F16C.
 *
 * A few dozen queries use each row, so arithmetic is the limit. For scores, the lanes are queries: packed
 * queries are groups of LATENT_QUERIES, stored column by column, and a number of a row is multiplied with a
 * whole group. So no sum has to be folded. For sums, the lanes are columns. Panels are rows of float32, each
 * padded to a multiple of LATENT_COLUMNS. */
#include "kernels/avx2.h"

#include <string.h>

#include "kernels/blocks.h"

enum {
    TILE_M = 6, /* rows in a tile of scores, or queries in a tile of sums */
    TILE_N = 16 /* queries in a tile of scores, or columns in a tile of sums */
};

static int64_t padded(int64_t width) { return latent_floats(1, width) / LATENT_QUERIES; }

/* ---- panels --------------------------------------------------------------------------------- */

static void load_floats(int64_t n, const float *from, int64_t stride, int64_t width, float *panel)
{
    for (int64_t j = 0; j < n; j++)
        memcpy(panel + j * padded(width), from + j * stride, (size_t)width * sizeof *from);
}

static void load_f32(int64_t n, const void *src, int64_t width, float *panel)
{
    load_floats(n, src, width, width, panel);
}

static void load_f16(int64_t n, const void *src, int64_t width, float *panel)
{
    const int64_t row = width * 2;
    for (int64_t j = 0; j < n; j++) {
        const unsigned char *from = (const unsigned char *)src + j * row;
        float *to = panel + j * padded(width);
        int64_t k = 0;
        for (; k + 8 <= width; k += 8)
            _mm256_storeu_ps(to + k,
                             _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * k))));
        unsigned char rest[16] = {0};
        memcpy(rest, from + 2 * k, (size_t)(width - k) * 2);
        if (k < width)
            _mm256_storeu_ps(to + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)rest)));
    }
}

static void load_q8_0(int64_t n, const void *src, int64_t width, float *panel)
{
    const int64_t row = dtype_bytes(DSMOE_Q8_0, width);
    for (int64_t j = 0; j < n; j++) {
        const block_q8_0 *from = (const block_q8_0 *)((const unsigned char *)src + j * row);
        float *to = panel + j * padded(width);
        for (int64_t b = 0; b < width / BLOCK; b++) {
            uint16_t half;
            memcpy(&half, from[b].d, sizeof half);
            const __m256 scale = _mm256_set1_ps(_cvtsh_ss(half));
            for (int64_t k = 0; k < BLOCK; k += 8) {
                __m128i codes = _mm_loadl_epi64((const __m128i *)(from[b].q + k));
                __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
                _mm256_storeu_ps(to + b * BLOCK + k, _mm256_mul_ps(x, scale));
            }
        }
    }
}

/* ---- scores --------------------------------------------------------------------------------- */

static void pack(int64_t m, const float *q, int64_t width, float *packed)
{
    for (int64_t i = 0; i < m; i += LATENT_QUERIES, packed += width * LATENT_QUERIES)
        for (int64_t k = 0; k < width; k++)
            for (int64_t r = 0; r < LATENT_QUERIES; r++)
                packed[k * LATENT_QUERIES + r] = i + r < m ? q[(i + r) * width + k] : 0.0f;
}

/* Scores of a group of queries for TILE_M rows, as sums[row][query]. */
INLINE void score_tile(const float *packed, const float *row, int64_t width, int64_t stride,
                       latent_next next, float sums[TILE_M][LATENT_QUERIES])
{
    __m256 sum[TILE_M][2];
    UNROLL
    for (int j = 0; j < TILE_M; j++) sum[j][0] = sum[j][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < width; k++) {
        if (k % 2 == 0) next_ask(next, k / 2);
        const __m256 a = _mm256_loadu_ps(packed + k * LATENT_QUERIES);
        const __m256 b = _mm256_loadu_ps(packed + k * LATENT_QUERIES + 8);
        UNROLL
        for (int j = 0; j < TILE_M; j++) {
            const __m256 x = _mm256_broadcast_ss(row + j * stride + k);
            sum[j][0] = _mm256_fmadd_ps(a, x, sum[j][0]);
            sum[j][1] = _mm256_fmadd_ps(b, x, sum[j][1]);
        }
    }
    UNROLL
    for (int j = 0; j < TILE_M; j++) {
        _mm256_storeu_ps(sums[j], sum[j][0]);
        _mm256_storeu_ps(sums[j] + 8, sum[j][1]);
    }
}

static void score(int64_t m, const float *packed, int64_t n, const float *panel, int64_t width,
                  float *scores, int64_t ld, latent_next next)
{
    for (int64_t i = 0; i < m; i += LATENT_QUERIES) {
        int64_t queries = m - i < LATENT_QUERIES ? m - i : LATENT_QUERIES;
        for (int64_t j = 0; j < n; j += TILE_M) {
            int64_t count = n - j < TILE_M ? n - j : TILE_M;
            float sums[TILE_M][LATENT_QUERIES];
            latent_next ahead = {0}; /* the first group prefetches all of `next` */
            if (i == 0) ahead = next_part(next, j / TILE_M, (n + TILE_M - 1) / TILE_M);
            score_tile(packed + i * width, panel + j * padded(width), width, padded(width), ahead,
                       sums);
            for (int64_t r = 0; r < queries; r++)
                for (int64_t k = 0; k < count; k++) scores[(i + r) * ld + j + k] = sums[k][r];
        }
    }
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Adds n rows to TILE_N columns of m queries. */
INLINE void add_tile(const int m, const float *weights, int64_t ld, int64_t n, const float *row,
                     int64_t stride, float *y, int64_t ldy)
{
    __m256 sum[TILE_M][2];
    UNROLL
    for (int i = 0; i < m; i++) {
        sum[i][0] = _mm256_loadu_ps(y + i * ldy);
        sum[i][1] = _mm256_loadu_ps(y + i * ldy + 8);
    }
    for (int64_t j = 0; j < n; j++, row += stride) {
        const __m256 a = _mm256_loadu_ps(row), b = _mm256_loadu_ps(row + 8);
        UNROLL
        for (int i = 0; i < m; i++) {
            const __m256 w = _mm256_broadcast_ss(weights + i * ld + j);
            sum[i][0] = _mm256_fmadd_ps(w, a, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(w, b, sum[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        _mm256_storeu_ps(y + i * ldy, sum[i][0]);
        _mm256_storeu_ps(y + i * ldy + 8, sum[i][1]);
    }
}

static void add_queries(int64_t m, const float *weights, int64_t ld, int64_t n, const float *row,
                        int64_t stride, float *y, int64_t ldy)
{
    switch (m) {
    case 1: add_tile(1, weights, ld, n, row, stride, y, ldy); break;
    case 2: add_tile(2, weights, ld, n, row, stride, y, ldy); break;
    case 3: add_tile(3, weights, ld, n, row, stride, y, ldy); break;
    case 4: add_tile(4, weights, ld, n, row, stride, y, ldy); break;
    case 5: add_tile(5, weights, ld, n, row, stride, y, ldy); break;
    default: add_tile(6, weights, ld, n, row, stride, y, ldy); break;
    }
}

/* add_queries for fewer columns: the panel has TILE_N, but y does not. */
static void add_rest(int64_t m, const float *weights, int64_t ld, int64_t n, const float *row,
                     int64_t stride, float *y, int64_t ldy, int64_t columns)
{
    float part[TILE_M][TILE_N] = {{0}};
    for (int64_t i = 0; i < m; i++) memcpy(part[i], y + i * ldy, (size_t)columns * sizeof *y);
    add_queries(m, weights, ld, n, row, stride, part[0], TILE_N);
    for (int64_t i = 0; i < m; i++) memcpy(y + i * ldy, part[i], (size_t)columns * sizeof *y);
}

static void add(int64_t m, const float *weights, int64_t ld, int64_t n, const float *panel,
                int64_t width, float *y, int64_t n_sums)
{
    for (int64_t k = 0; k < n_sums; k += TILE_N)
        for (int64_t i = 0; i < m; i += TILE_M) {
            int64_t queries = m - i < TILE_M ? m - i : TILE_M;
            float *to = y + i * n_sums + k;
            if (n_sums - k >= TILE_N)
                add_queries(queries, weights + i * ld, ld, n, panel + k, padded(width), to, n_sums);
            else
                add_rest(queries, weights + i * ld, ld, n, panel + k, padded(width), to, n_sums,
                         n_sums - k);
        }
}

const latent_kernels latents_avx2[N_DTYPES] = {
    [DSMOE_F32] = {load_f32, load_floats, pack, score, add},
    [DSMOE_F16] = {load_f16, load_floats, pack, score, add},
    [DSMOE_Q8_0] = {load_q8_0, load_floats, pack, score, add},
};

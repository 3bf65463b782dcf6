/* avx512_latent.c - latents of types with few bits (F16, Q8_0), for AVX-512 with VNNI.
 *
 * A few dozen queries use each row, so arithmetic is the limit, and a register does twice as many products of
 * 16-bit words as of float32. Rows are converted to words of 13 bits, queries to 12 and weights to 13, each
 * with one scale for a stretch of columns. The rounding error is up to twice that of float16. The sums of a
 * stretch are exact in 32 bits, so only the order of stretches and panels matters, and that is fixed.
 *
 * For scores, the lanes are queries: packed queries are groups, stored in pairs of columns, and two numbers
 * of a row are multiplied with a whole group. For sums, the lanes are columns: a panel has its rows a second
 * time, in pairs of rows. The words of 32 columns alternate, one of the first 16 columns and one of the last
 * 16: see in_turn. */
#include "kernels/avx512.h"

#include <string.h>

#include "kernels/blocks.h"

enum {
    /* The largest words of a row, a query and a weight. 32 bits hold the sum of BLOCK_STRETCH products of
     * rows and queries, and of LATENT_KEYS products of rows and weights. */
    ROW_MOST = 4095,
    QUERY_MOST = 2047,
    WEIGHT_MOST = 8191,
    WIDE = 16,             /* lanes of a register */
    STEP = LATENT_COLUMNS, /* columns that are converted at once */
    TILE_M = 8,            /* queries in a tile of sums */
    LOAD_ROWS = 8,         /* rows that are converted together */
};

static int64_t padded(int64_t width) { return latent_floats(1, width) / LATENT_QUERIES; }
static int64_t stretches(int64_t width) { return (width + BLOCK_STRETCH - 1) / BLOCK_STRETCH; }

/* ---- panels --------------------------------------------------------------------------------- */

typedef struct word_panel {
    int16_t *rows;  /* [LATENT_KEYS, padded] */
    int16_t *pairs; /* [padded / STEP][LATENT_KEYS / 2][STEP][2]: the same words in pairs of rows */
    float *scale;   /* [stretches][LATENT_KEYS] */
} word_panel;

static word_panel panel_at(const float *panel, int64_t width)
{
    int16_t *words = (int16_t *)panel;
    int64_t size = LATENT_KEYS * padded(width);
    return (word_panel){words, words + size, (float *)(words + 2 * size)};
}

/* A mask of the first n lanes; none if n is below 1, all if n is 16 or more. */
INLINE __mmask16 lanes(int64_t n)
{
    return n >= WIDE ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}

/* Numbers times a factor, rounded to integers in the lower word of each lane. */
INLINE __m512i to_words(__m512 x, __m512 factor)
{
    const __m512 whole = _mm512_set1_ps(3 << 22); /* floats as large as this have no fraction */
    return _mm512_castps_si512(_mm512_fmadd_ps(x, factor, whole));
}

/* The lower words of all lanes of a and b, alternating. */
INLINE __m512i in_turn(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

/* Loads n ≤ 32 halves and pads with zeros. */
INLINE __m512i load_halves(const unsigned char *at, int64_t n)
{
    if (n >= STEP) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), at);
}

/* The largest magnitude of n halves; infinite or NaN if one of them is. */
INLINE float largest_half(const unsigned char *at, int64_t n)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t k = 0; k < n; k += STEP)
        most = _mm512_max_epu16(most, _mm512_and_si512(load_halves(at + 2 * k, n - k), magnitude));
    __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i all = _mm_set1_epi16(-1); /* the largest number has the smallest complement */
    int least = _mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(eight, all)), 0);
    return _cvtsh_ss((unsigned short)~least);
}

/* The scale of numbers whose largest is given; *factor converts them to words. Both are NaN if `largest` is
 * not finite. */
INLINE float scale_of(float largest, float most, float *factor)
{
    if (!(largest - largest == 0.0f)) return *factor = largest - largest;
    *factor = largest > 0.0f ? most / largest : 0.0f;
    if (!(*factor - *factor == 0.0f)) return *factor = 0.0f; /* all numbers are nearly 0 */
    return largest / most;
}

/* 32 columns of a row, each in the lower word of a lane. */
typedef struct wide_words {
    __m512i low, high;
} wide_words;

/* Converts 32 columns of float16, of which n exist. */
INLINE wide_words words_f16(const unsigned char *at, int64_t n, float factor)
{
    const __m512 by = _mm512_set1_ps(factor);
    __m256i low, high;
    if (n >= STEP) { /* straight from memory */
        low = _mm256_loadu_si256((const __m256i *)at);
        high = _mm256_loadu_si256((const __m256i *)(at + 2 * WIDE));
    } else {
        low = _mm256_maskz_loadu_epi16(lanes(n), at);
        high = _mm256_maskz_loadu_epi16(lanes(n - WIDE), at + 2 * WIDE);
    }
    return (wide_words){to_words(_mm512_cvtph_ps(low), by), to_words(_mm512_cvtph_ps(high), by)};
}

/* The largest magnitude of n floats; infinite or NaN if one of them is. */
INLINE float largest_float(const float *x, int64_t n)
{
    __m512 most = _mm512_setzero_ps(), check = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += WIDE) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes(n - k), x + k);
        most = _mm512_max_ps(most, _mm512_abs_ps(v));
        check = _mm512_add_ps(check, _mm512_sub_ps(v, v)); /* 0, or NaN */
    }
    return _mm512_reduce_max_ps(most) + _mm512_reduce_add_ps(check);
}

/* Converts 32 columns of float32, of which n exist. */
INLINE wide_words words_f32(const float *at, int64_t n, float factor)
{
    const __m512 by = _mm512_set1_ps(factor);
    return (wide_words){to_words(_mm512_maskz_loadu_ps(lanes(n), at), by),
                        to_words(_mm512_maskz_loadu_ps(lanes(n - WIDE), at + WIDE), by)};
}

/* The factor of each block in a stretch of a row of Q8_0, 0 to FINE_FACTOR. */
typedef struct block_factors {
    int16_t at[BLOCK_STRETCH / BLOCK];
} block_factors;

INLINE float scale_q8_0(const block_q8_0 *blocks, int64_t n, block_factors *factors)
{
    float scale[BLOCK_STRETCH / BLOCK], largest = 0.0f;
    for (int64_t b = 0; b < n; b++) {
        uint16_t half;
        memcpy(&half, blocks[b].d, sizeof half);
        scale[b] = _cvtsh_ss(half);
        if (!(scale[b] - scale[b] == 0.0f)) largest = scale[b] - scale[b];
        if (scale[b] > largest) largest = scale[b];
    }
    float factor = largest > 0.0f ? (float)FINE_FACTOR / largest : 0.0f;
    for (int64_t b = 0; b < n; b++)
        factors->at[b] = (int16_t)_mm_cvtss_si32(_mm_set_ss(scale[b] * factor));
    return largest / (float)FINE_ONE;
}

/* Converts the codes of a block. */
INLINE wide_words words_q8_0(const block_q8_0 *block, int16_t factor)
{
    const __m512i by = _mm512_set1_epi16(factor);
    __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)block->q));
    __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(block->q + WIDE)));
    return (wide_words){_mm512_mulhrs_epi16(_mm512_slli_epi32(low, 8), by), /* ⌊code·factor/128⌉ */
                        _mm512_mulhrs_epi16(_mm512_slli_epi32(high, 8), by)};
}

/* Stores the words of two rows in both forms. */
INLINE void put_pair(word_panel to, int64_t row, int64_t k, int64_t stride, wide_words a,
                     wide_words b)
{
    int16_t *pair = to.pairs + (k * LATENT_KEYS + row * STEP);
    _mm512_store_si512(to.rows + row * stride + k, in_turn(a.low, a.high));
    _mm512_store_si512(to.rows + (row + 1) * stride + k, in_turn(b.low, b.high));
    _mm512_store_si512(pair, in_turn(a.low, b.low));
    _mm512_store_si512(pair + STEP, in_turn(a.high, b.high));
}

/* Loads columns first … end - 1 of a stretch of some rows. All scales are made first, since they depend only
 * on memory. An odd last row is stored twice. */
static void load_part_f16(int64_t n, const unsigned char *src, int64_t width, int64_t first,
                          int64_t end, word_panel to, int64_t row, float *scale)
{
    float factor[LOAD_ROWS];
    const int64_t bytes = width * 2, stride = padded(width);
    for (int64_t j = 0; j < n + n % 2; j++) {
        const unsigned char *at = src + (j < n ? j : n - 1) * bytes + 2 * first;
        scale[j] = scale_of(largest_half(at, end - first), ROW_MOST, &factor[j]);
    }
    for (int64_t j = 0; j < n; j += 2) {
        const unsigned char *a = src + j * bytes, *b = j + 1 < n ? a + bytes : a;
        for (int64_t k = first; k < end; k += STEP)
            put_pair(to, row + j, k, stride, words_f16(a + 2 * k, end - k, factor[j]),
                     words_f16(b + 2 * k, end - k, factor[j + 1]));
    }
}

static void load_f16(int64_t n, const void *src, int64_t width, float *panel)
{
    const word_panel to = panel_at(panel, width);
    for (int64_t row = 0; row < n; row += LOAD_ROWS)
        for (int64_t s = 0; s < stretches(width); s++) {
            int64_t first = s * BLOCK_STRETCH, count = n - row < LOAD_ROWS ? n - row : LOAD_ROWS;
            int64_t end = width - first < BLOCK_STRETCH ? width : first + BLOCK_STRETCH;
            load_part_f16(count, (const unsigned char *)src + row * width * 2, width, first, end,
                          to, row, to.scale + s * LATENT_KEYS + row);
        }
}

static void load_floats(int64_t n, const float *from, int64_t apart, int64_t width, float *panel)
{
    const int64_t stride = padded(width);
    const word_panel to = panel_at(panel, width);
    for (int64_t j = 0; j < n; j += 2) {
        const float *a = from + j * apart, *b = j + 1 < n ? a + apart : a;
        for (int64_t s = 0; s < stretches(width); s++) {
            int64_t first = s * BLOCK_STRETCH;
            int64_t end = width - first < BLOCK_STRETCH ? width : first + BLOCK_STRETCH;
            float *scale = to.scale + s * LATENT_KEYS + j, fa, fb;
            scale[0] = scale_of(largest_float(a + first, end - first), ROW_MOST, &fa);
            scale[1] = scale_of(largest_float(b + first, end - first), ROW_MOST, &fb);
            for (int64_t k = first; k < end; k += STEP)
                put_pair(to, j, k, stride, words_f32(a + k, end - k, fa),
                         words_f32(b + k, end - k, fb));
        }
    }
}

static void load_q8_0(int64_t n, const void *src, int64_t width, float *panel)
{
    const int64_t row = dtype_bytes(DSMOE_Q8_0, width), stride = padded(width);
    const word_panel to = panel_at(panel, width);
    for (int64_t j = 0; j < n; j += 2) {
        const block_q8_0 *a = (const block_q8_0 *)((const unsigned char *)src + j * row);
        const block_q8_0 *b = j + 1 < n ? a + width / BLOCK : a;
        for (int64_t s = 0; s < stretches(width); s++) {
            const int64_t most = BLOCK_STRETCH / BLOCK, first = s * most;
            int64_t count = width / BLOCK - first < most ? width / BLOCK - first : most;
            float *scale = to.scale + s * LATENT_KEYS + j;
            block_factors fa, fb;
            scale[0] = scale_q8_0(a + first, count, &fa);
            scale[1] = scale_q8_0(b + first, count, &fb);
            for (int64_t i = 0; i < count; i++)
                put_pair(to, j, (first + i) * BLOCK, stride, words_q8_0(a + first + i, fa.at[i]),
                         words_q8_0(b + first + i, fb.at[i]));
        }
    }
}

/* ---- queries -------------------------------------------------------------------------------- */

/* A group is [padded / 2][LATENT_QUERIES][2] words, followed by scales [stretches][LATENT_QUERIES]. */
static int64_t group_floats(int64_t width) { return latent_floats(LATENT_QUERIES, width); }

static float *group_scales(const float *group, int64_t width)
{
    return (float *)group + padded(width) * LATENT_QUERIES / 2;
}

/* Transposes 16 rows of 16 lanes. */
INLINE void transpose(__m512 r[WIDE])
{
    __m512 t[WIDE];
    UNROLL
    for (int i = 0; i < WIDE; i += 4) {
        __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]),
               d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) { /* column 4·q + i is in quarter q of t[i], t[i + 4] … */
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        __m512 b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        __m512 c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
}

/* Packs columns first … end - 1 of a stretch of min(m, LATENT_QUERIES) queries. */
static void pack_stretch(int64_t m, const float *q, int64_t width, int64_t first, int64_t end,
                         float *group, float *scale)
{
    float factor[LATENT_QUERIES] = {0};
    for (int64_t i = 0; i < LATENT_QUERIES; i++) {
        const float *row = q + i * width + first;
        scale[i] = i < m ? scale_of(largest_float(row, end - first), QUERY_MOST, &factor[i]) : 0.0f;
    }
    for (int64_t k = first; k < end; k += STEP) {
        __m512 pairs[WIDE];
        for (int i = 0; i < WIDE; i++) {
            int64_t n = i < m ? end - k : 0;
            wide_words of = words_f32(q + i * width + k, n, factor[i]);
            pairs[i] = _mm512_castsi512_ps(in_turn(of.low, of.high));
        }
        transpose(pairs);
        for (int i = 0; i < WIDE; i++)
            _mm512_storeu_ps(group + (k / 2 + i) * LATENT_QUERIES, pairs[i]);
    }
}

static void pack(int64_t m, const float *q, int64_t width, float *packed)
{
    for (; m > 0; m -= LATENT_QUERIES) {
        float *scales = group_scales(packed, width);
        for (int64_t s = 0; s < stretches(width); s++) {
            int64_t first = s * BLOCK_STRETCH;
            int64_t end = width - first < BLOCK_STRETCH ? width : first + BLOCK_STRETCH;
            pack_stretch(m, q, width, first, end, packed, scales + s * LATENT_QUERIES);
        }
        q += LATENT_QUERIES * width;
        packed += group_floats(width);
    }
}

/* ---- scores --------------------------------------------------------------------------------- */

/* Products of a group of queries with 16 rows over n columns of a stretch, as sum[row][query]. */
INLINE void score_tile(const float *group, const int16_t *row, int64_t stride, int64_t n,
                       latent_next next, int64_t line, __m512i sum[WIDE])
{
    UNROLL
    for (int j = 0; j < WIDE; j++) sum[j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < n; k += 2) {
        next_ask(next, line + k / 2);
        const __m512i q = _mm512_loadu_si512(group + k / 2 * LATENT_QUERIES);
        UNROLL
        for (int j = 0; j < WIDE; j++) {
            int32_t two;
            memcpy(&two, row + j * stride + k, sizeof two);
            sum[j] = _mm512_dpwssd_epi32(sum[j], q, _mm512_set1_epi32(two));
        }
    }
}

/* Scores of a group of queries for 16 rows, beginning with row `row`, over all stretches: as
 * scores[query][row]. */
static void score_rows(const float *group, word_panel from, int64_t row, int64_t width,
                       latent_next next, __m512 scores[WIDE])
{
    const int64_t stride = padded(width);
    const float *scales = group_scales(group, width);
    UNROLL
    for (int j = 0; j < WIDE; j++) scores[j] = _mm512_setzero_ps();
    for (int64_t s = 0; s < stretches(width); s++) {
        int64_t first = s * BLOCK_STRETCH;
        int64_t n = stride - first < BLOCK_STRETCH ? stride - first : BLOCK_STRETCH;
        const float *scale = from.scale + s * LATENT_KEYS + row;
        const __m512 q = _mm512_loadu_ps(scales + s * LATENT_QUERIES);
        __m512i sum[WIDE];
        score_tile(group + first / 2 * LATENT_QUERIES, from.rows + row * stride + first, stride, n,
                   next, first / 2, sum);
        UNROLL
        for (int j = 0; j < WIDE; j++)
            scores[j] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum[j]), q),
                                        _mm512_set1_ps(scale[j]), scores[j]);
    }
    transpose(scores);
}

static void score(int64_t m, const float *packed, int64_t n, const float *panel, int64_t width,
                  float *scores, int64_t ld, latent_next next)
{
    const word_panel from = panel_at(panel, width);
    for (int64_t i = 0; i < m; i += LATENT_QUERIES, packed += group_floats(width))
        for (int64_t j = 0; j < n; j += WIDE) {
            __m512 sums[WIDE];
            latent_next ahead = {0}; /* the first group prefetches all of `next` */
            if (i == 0) ahead = next_part(next, j / WIDE, (n + WIDE - 1) / WIDE);
            score_rows(packed, from, j, width, ahead, sums);
            for (int64_t r = 0; r < LATENT_QUERIES && i + r < m; r++)
                _mm512_storeu_ps(scores + (i + r) * ld + j, sums[r]);
        }
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* The weights of TILE_M queries in a stretch. */
typedef struct word_weights {
    int32_t pair[TILE_M][LATENT_KEYS / 2]; /* [i][j]: the words of rows 2·j and 2·j + 1 */
    float scale[TILE_M];
} word_weights;

/* Converts weights, multiplied by the scales of their rows. A row with weight 0 gets 0, whatever its scale
 * is. */
static void weigh_rows(int64_t m, const float *weights, int64_t ld, const float *scale,
                       word_weights *to)
{
    for (int64_t i = 0; i < TILE_M; i++) {
        __m512 w[LATENT_KEYS / WIDE], most = _mm512_setzero_ps();
        UNROLL
        for (int j = 0; j < LATENT_KEYS / WIDE; j++) {
            w[j] = i < m ? _mm512_loadu_ps(weights + i * ld + j * WIDE) : _mm512_setzero_ps();
            __mmask16 some = _mm512_cmp_ps_mask(w[j], _mm512_setzero_ps(), _CMP_NEQ_UQ);
            w[j] = _mm512_maskz_mul_ps(some, w[j], _mm512_loadu_ps(scale + j * WIDE));
            most = _mm512_max_ps(most, _mm512_abs_ps(w[j]));
        }
        float factor;
        to->scale[i] = scale_of(_mm512_reduce_max_ps(most), WEIGHT_MOST, &factor);
        UNROLL
        for (int j = 0; j < LATENT_KEYS / WIDE; j++) {
            __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(w[j], _mm512_set1_ps(factor)));
            _mm256_storeu_si256((__m256i *)&to->pair[i][j * WIDE / 2],
                                _mm512_cvtsepi32_epi16(whole));
        }
    }
}

/* y += scale·Σ over n pairs of rows, for the first m of TILE_M queries and the first `columns` of 32
 * columns. */
static void add_tile(int64_t m, const word_weights *w, int64_t n, const int16_t *pairs, float *y,
                     int64_t ldy, int64_t columns)
{
    __m512i sum[TILE_M][2];
    UNROLL
    for (int i = 0; i < TILE_M; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t j = 0; j < n; j++, pairs += 2 * STEP) {
        const __m512i a = _mm512_load_si512(pairs), b = _mm512_load_si512(pairs + STEP);
        UNROLL
        for (int i = 0; i < TILE_M; i++) {
            const __m512i two = _mm512_set1_epi32(w->pair[i][j]);
            sum[i][0] = _mm512_dpwssd_epi32(sum[i][0], a, two);
            sum[i][1] = _mm512_dpwssd_epi32(sum[i][1], b, two);
        }
    }
    const __mmask16 low = lanes(columns), high = lanes(columns - WIDE);
    UNROLL
    for (int i = 0; i < TILE_M; i++) {
        if (i >= m) break;
        float *to = y + i * ldy;
        const __m512 scale = _mm512_set1_ps(w->scale[i]);
        _mm512_mask_storeu_ps(
            to, low,
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][0]), scale, _mm512_maskz_loadu_ps(low, to)));
        _mm512_mask_storeu_ps(to + WIDE, high,
                              _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][1]), scale,
                                              _mm512_maskz_loadu_ps(high, to + WIDE)));
    }
}

static void add(int64_t m, const float *weights, int64_t ld, int64_t n, const float *panel,
                int64_t width, float *y, int64_t n_sums)
{
    enum { GROUPS = 2 }; /* tiles that use a part of the panel while it is in the L1 cache */
    const word_panel from = panel_at(panel, width);
    for (int64_t first = 0; first < m; first += GROUPS * TILE_M)
        for (int64_t s = 0; s < stretches(n_sums); s++) {
            int64_t end =
                n_sums - s * BLOCK_STRETCH < BLOCK_STRETCH ? n_sums : (s + 1) * BLOCK_STRETCH;
            word_weights w[GROUPS];
            for (int g = 0; g < GROUPS; g++)
                weigh_rows(m - first - g * TILE_M, weights + (first + g * TILE_M) * ld, ld,
                           from.scale + s * LATENT_KEYS, &w[g]);
            for (int64_t k = s * BLOCK_STRETCH; k < end; k += STEP)
                for (int g = 0; g < GROUPS && first + g * TILE_M < m; g++)
                    add_tile(m - first - g * TILE_M, &w[g], (n + 1) / 2,
                             from.pairs + k * LATENT_KEYS, y + (first + g * TILE_M) * n_sums + k,
                             n_sums, n_sums - k);
        }
}

void latents_add_avx512(latent_kernels *latents)
{
    latents[DSMOE_F16] = (latent_kernels){load_f16, load_floats, pack, score, add};
    latents[DSMOE_Q8_0] = (latent_kernels){load_q8_0, load_floats, pack, score, add};
}

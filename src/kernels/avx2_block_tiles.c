/* avx2_block_tiles.c - products of many rows with block types: weights are unpacked once for all rows.
 *
 * A register holds four columns of eight rows of w, so that one multiplication by four broadcast
 * columns of x gives sums for eight outputs, and nothing has to be added across lanes.
 *
 * Codes below 16 times q leave room in 16 bits for the sum of a whole block of 32: pairs are at most
 * 2·15·127, eight deep 30480. With codes below 32 it is half a block. So of 20 instructions for 256
 * products only 5 do something else than multiply and add bytes. Codes of 8 bits and more have no such
 * room: they become 16 bits and are summed in 32. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2_blocks.h"

enum {
    TILE_M = AVX2_BLOCK_TILE_M,
    TILE_N = BLOCK_TILE_N,
    STEP_BYTES = TILE_N * 4,                   /* of a panel */
    BLOCK_BYTES_OF_PANEL = STEPS * STEP_BYTES, /* of codes that are bytes */
};

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The sums of a tile become part of c. */
INLINE void tile_store(const int height, const float sum[TILE_M][TILE_N], float *c, int64_t ldc,
                       bool accumulate, int n)
{
    for (int i = 0; i < height; i++, c += ldc) {
        if (n == TILE_N) {
            UNROLL
            for (int v = 0; v < TILE_N; v += 8) {
                __m256 s = _mm256_loadu_ps(sum[i] + v);
                if (accumulate) s = _mm256_add_ps(_mm256_loadu_ps(c + v), s);
                _mm256_storeu_ps(c + v, s);
            }
            continue;
        }
        for (int j = 0; j < n; j++) c[j] = accumulate ? c[j] + sum[i][j] : sum[i][j];
    }
}

/* Σ q·code over a block, for `height` rows of x and 16 of w; `depth` steps are summed in 16 bits. */
INLINE void dot_bytes(const int height, const int depth, const int8_t *x, const uint8_t *w,
                      __m256i dot[TILE_M][2])
{
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (int first = 0; first < STEPS; first += depth) {
        __m256i sum[TILE_M][2];
        UNROLL
        for (int s = 0; s < depth; s++, x += TILE_M * 4, w += STEP_BYTES) {
            __m256i w0 = _mm256_loadu_si256((const __m256i *)w);
            __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + 32));
            UNROLL
            for (int i = 0; i < height; i++) {
                __m256i xi = x_step(x + i * 4);
                __m256i p0 = _mm256_maddubs_epi16(w0, xi), p1 = _mm256_maddubs_epi16(w1, xi);
                sum[i][0] = s ? _mm256_add_epi16(sum[i][0], p0) : p0;
                sum[i][1] = s ? _mm256_add_epi16(sum[i][1], p1) : p1;
                KEEP_ORDER(sum[i][0]);
                KEEP_ORDER(sum[i][1]);
            }
        }
        UNROLL
        for (int i = 0; i < height; i++) {
            UNROLL
            for (int v = 0; v < 2; v++) {
                __m256i wide = _mm256_madd_epi16(sum[i][v], ones);
                dot[i][v] = first ? _mm256_add_epi32(dot[i][v], wide) : wide;
            }
        }
    }
}

/* A block more: sum + (dot·scale_x)·scale - min·sum_x; without minima `min` is NULL. */
INLINE void add_block(const int height, const __m256i dot[TILE_M][2], block_rows x,
                      const float *scale, const float *min, float sum[TILE_M][TILE_N])
{
    UNROLL
    for (int v = 0; v < 2; v++) {
        __m256 scale_w = _mm256_loadu_ps(scale + v * 8);
        UNROLL
        for (int i = 0; i < height; i++) {
            __m256 scaled =
                _mm256_mul_ps(_mm256_cvtepi32_ps(dot[i][v]), _mm256_broadcast_ss(x.scale + i));
            __m256 s = _mm256_fmadd_ps(scaled, scale_w, _mm256_load_ps(sum[i] + v * 8));
            if (min)
                s = _mm256_fnmadd_ps(_mm256_loadu_ps(min + v * 8), _mm256_broadcast_ss(x.sum + i),
                                     s);
            _mm256_store_ps(sum[i] + v * 8, s);
        }
    }
}

INLINE void tile_bytes_of(const int height, const int depth, int64_t width, block_rows x,
                          block_panel w, float *c, int64_t ldc, bool accumulate, int n)
{
    float sum[TILE_M][TILE_N] __attribute__((aligned(32))) = {{0}};
    const int8_t *q = x.q;
    const uint8_t *code = w.code;
    const int64_t ahead = width * TILE_M; /* where the next tile's x is */
    for (; width > 0; width -= BLOCK, q += BLOCK * TILE_M, code += BLOCK_BYTES_OF_PANEL) {
        UNROLL
        for (int line = 0; line < BLOCK * TILE_M; line += CACHE_LINE)
            _mm_prefetch((const char *)q + ahead + line, _MM_HINT_T0);
        __m256i dot[TILE_M][2];
        dot_bytes(height, depth, q, code, dot);
        add_block(height, dot, x, w.scale, w.min, sum);
        x.scale += x.stride;
        x.sum += x.stride;
        w.scale += TILE_N;
        w.min += TILE_N;
    }
    tile_store(height, (const float(*)[TILE_N])sum, c, ldc, accumulate, n);
}

INLINE void tile_bytes(const int depth, int64_t width, block_rows x, block_panel w, float *c,
                       int64_t ldc, bool accumulate, int m, int n)
{
    switch (m) {
    case 1: tile_bytes_of(1, depth, width, x, w, c, ldc, accumulate, n); break;
    case 2: tile_bytes_of(2, depth, width, x, w, c, ldc, accumulate, n); break;
    case 3: tile_bytes_of(3, depth, width, x, w, c, ldc, accumulate, n); break;
    default: tile_bytes_of(4, depth, width, x, w, c, ldc, accumulate, n); break;
    }
}

static void tile_4_bits(int64_t width, block_rows x, block_panel w, float *c, int64_t ldc,
                        bool accumulate, int m, int n)
{
    tile_bytes(8, width, x, w, c, ldc, accumulate, m, n);
}

static void tile_5_bits(int64_t width, block_rows x, block_panel w, float *c, int64_t ldc,
                        bool accumulate, int m, int n)
{
    tile_bytes(4, width, x, w, c, ldc, accumulate, m, n);
}

INLINE void tile_words_of(const int height, int64_t width, block_rows x, block_panel w, float *c,
                          int64_t ldc, bool accumulate, int n)
{
    float sum[TILE_M][TILE_N] __attribute__((aligned(32))) = {{0}};
    const int16_t *q = x.q, *code = w.code;
    const int64_t ahead = width * TILE_M;
    for (; width > 0; width -= BLOCK) {
        UNROLL
        for (int line = 0; line < BLOCK * TILE_M * 2; line += CACHE_LINE)
            _mm_prefetch((const char *)(q + ahead) + line, _MM_HINT_T0);
        __m256i dot[TILE_M][2];
        UNROLL
        for (int s = 0; s < 2 * STEPS; s++, q += TILE_M * 2, code += TILE_N * 2) {
            __m256i w0 = _mm256_loadu_si256((const __m256i *)code);
            __m256i w1 = _mm256_loadu_si256((const __m256i *)(code + 16));
            UNROLL
            for (int i = 0; i < height; i++) {
                __m256i xi = x_step(q + i * 2);
                __m256i p0 = _mm256_madd_epi16(w0, xi), p1 = _mm256_madd_epi16(w1, xi);
                dot[i][0] = s ? _mm256_add_epi32(dot[i][0], p0) : p0;
                dot[i][1] = s ? _mm256_add_epi32(dot[i][1], p1) : p1;
                KEEP_ORDER(dot[i][0]);
                KEEP_ORDER(dot[i][1]);
            }
        }
        add_block(height, dot, x, w.scale, NULL, sum);
        x.scale += x.stride;
        w.scale += TILE_N;
    }
    tile_store(height, (const float(*)[TILE_N])sum, c, ldc, accumulate, n);
}

static void tile_words(int64_t width, block_rows x, block_panel w, float *c, int64_t ldc,
                       bool accumulate, int m, int n)
{
    switch (m) {
    case 1: tile_words_of(1, width, x, w, c, ldc, accumulate, n); break;
    case 2: tile_words_of(2, width, x, w, c, ldc, accumulate, n); break;
    case 3: tile_words_of(3, width, x, w, c, ldc, accumulate, n); break;
    default: tile_words_of(4, width, x, w, c, ldc, accumulate, n); break;
    }
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Each of them: one record of an octet, to the panel's place for its rows. */

INLINE void store_step(unsigned char *panel, int step, __m256i codes)
{
    _mm256_storeu_si256((__m256i *)(panel + step * STEP_BYTES), codes);
}

/* d, and `zero` times it. */
INLINE void small_scales(const uint16_t halves[8], float zero, float *scale, float *min)
{
    __m256 d = octet_floats(halves);
    _mm256_storeu_ps(scale, d);
    _mm256_storeu_ps(min, _mm256_mul_ps(d, _mm256_set1_ps(zero)));
}

INLINE void unpack_q4_0(const octet_q4_0 *o, unsigned char *code, float *scale, float *min)
{
    small_scales(o->d, 8.0f, scale, min);
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i both = load_step(o->q[s]);
        store_step(code, s, low_halves(both));
        store_step(code, s + 4, high_halves(both));
    }
}

INLINE void unpack_q5_0(const octet_q5_0 *o, unsigned char *code, float *scale, float *min)
{
    small_scales(o->d, 16.0f, scale, min);
    __m256i high = load_step(o->high);
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i both = load_step(o->q[s]);
        store_step(code, s, _mm256_or_si256(low_halves(both), move_bits(high, s, 4, 16)));
        store_step(code, s + 4, _mm256_or_si256(high_halves(both), move_bits(high, s + 4, 4, 16)));
    }
}

/* Four signed bytes of each row as words: columns 0 and 2, then 1 and 3. */
INLINE void store_words(unsigned char *code, int step, __m256i even, __m256i odd)
{
    store_step(code, 2 * step, even);
    store_step(code, 2 * step + 1, odd);
}

INLINE void unpack_q8_0(const octet_q8_0 *o, unsigned char *code, float *scale, float *min)
{
    (void)min;
    _mm256_storeu_ps(scale, octet_floats(o->d));
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i four = load_step(o->q[s]);
        store_words(code, s, even_bytes(four), odd_bytes(four));
    }
}

/* d·scale and dmin·min of the eight parts of Q4_K and Q5_K. */
INLINE void large_scales(const uint16_t d_halves[8], const uint16_t dmin_halves[8],
                         const uint8_t scales[N_SCALE_BYTES][8], float *scale, float *min)
{
    __m256 d = octet_floats(d_halves), dmin = octet_floats(dmin_halves);
    UNROLL
    for (int part = 0; part < 8; part++) {
        octet_scales of = octet_scales_of(scales, part);
        _mm256_storeu_ps(scale + part * TILE_N, _mm256_mul_ps(of.scale, d));
        _mm256_storeu_ps(min + part * TILE_N, _mm256_mul_ps(of.min, dmin));
    }
}

INLINE void unpack_q4_k(const octet_q4_k *o, unsigned char *code, float *scale, float *min)
{
    large_scales(o->d, o->dmin, o->scales, scale, min);
    for (int pair = 0; pair < 4; pair++, code += 2 * BLOCK_BYTES_OF_PANEL) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i both = load_step(o->q[pair][s]);
            store_step(code, s, low_halves(both));
            store_step(code, s + STEPS, high_halves(both));
        }
    }
}

INLINE void unpack_q5_k(const octet_q5_k *o, unsigned char *code, float *scale, float *min)
{
    large_scales(o->d, o->dmin, o->scales, scale, min);
    UNROLL
    for (int part = 0; part < 8; part++, code += BLOCK_BYTES_OF_PANEL) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i both = load_step(o->q[part / 2][s]);
            __m256i fifth = move_bits(load_step(o->high[s]), part, 4, 16);
            __m256i four = part % 2 ? high_halves(both) : low_halves(both);
            store_step(code, s, _mm256_or_si256(four, fifth));
        }
    }
}

/* (code - 32)·scale as words. */
INLINE void unpack_q6_k(const octet_q6_k *o, unsigned char *code, float *scale, float *min)
{
    (void)min;
    __m256 d = octet_floats(o->d);
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i words[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            words[i] = octet_words(o->scales[4 * half + i]);
            _mm256_storeu_ps(scale + (4 * half + i) * TILE_N, d);
        }
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i four[4];
            octet_codes_q6_k(o, half, s, four);
            UNROLL
            for (int i = 0; i < 4; i++) {
                __m256i by_half = octet_half(words[i], s / 4);
                __m256i q = _mm256_sub_epi8(four[i], _mm256_set1_epi8(32));
                store_words(code + (4 * half + i) * 2 * BLOCK_BYTES_OF_PANEL, s,
                            _mm256_mullo_epi16(even_bytes(q), by_half),
                            _mm256_mullo_epi16(odd_bytes(q), by_half));
            }
        }
    }
}

#define UNPACK(type, TYPE, code_bytes)                                                             \
    static void panel_##type(block_panel panel, const void *const octet[2], int64_t column,        \
                             int64_t width)                                                        \
    {                                                                                              \
        const int block = dtype_table[TYPE].block;                                                 \
        for (int first = 0; first < TILE_N; first += BLOCK_OCTET) {                                \
            const octet_##type *o = octet[first / BLOCK_OCTET];                                    \
            for (int64_t k = 0; k < width; k += block) {                                           \
                int64_t at = k / BLOCK * TILE_N + first;                                           \
                unpack_##type(o + (column + k) / block,                                            \
                              (unsigned char *)panel.code + k * TILE_N * code_bytes + first * 4,   \
                              panel.scale + at, panel.min + at);                                   \
            }                                                                                      \
        }                                                                                          \
    }
UNPACK(q4_0, DSMOE_Q4_0, 1)
UNPACK(q5_0, DSMOE_Q5_0, 1)
UNPACK(q8_0, DSMOE_Q8_0, 2)
UNPACK(q4_k, DSMOE_Q4_K, 1)
UNPACK(q5_k, DSMOE_Q5_K, 1)
UNPACK(q6_k, DSMOE_Q6_K, 2)

#define KERNELS(type, form, tile)                                                                  \
    {                                                                                              \
        form, block_interleave_##type##_avx2, panel_##type, tile, block_row_##type##_avx2          \
    }
const block_kernels blocks_avx2[N_DTYPES] = {
    [DSMOE_Q4_0] = KERNELS(q4_0, BLOCK_BYTES, tile_4_bits),
    [DSMOE_Q5_0] = KERNELS(q5_0, BLOCK_BYTES, tile_5_bits),
    [DSMOE_Q8_0] = KERNELS(q8_0, BLOCK_WORDS, tile_words),
    [DSMOE_Q4_K] = KERNELS(q4_k, BLOCK_BYTES, tile_4_bits),
    [DSMOE_Q5_K] = KERNELS(q5_k, BLOCK_BYTES, tile_5_bits),
    [DSMOE_Q6_K] = KERNELS(q6_k, BLOCK_WORDS, tile_words),
};

/* avx2_block_tiles.c - products of many rows with block types: weights are unpacked once for all rows.
 *
 * A register holds four columns of eight rows of w, so that one multiplication by four broadcast
 * columns of x gives sums for eight outputs, and nothing has to be added across lanes.
 *
 * Codes below 16 times q leave room in 16 bits for the sum of a whole block of 32: pairs are at most
 * 2·15·127, eight deep 30480. With codes below 32 it is half a block. The scale of a part of a large
 * block, a whole number itself, is multiplied with on the way to 32 bits. So of 18 instructions for 256
 * products only 3 do something else than multiply and add bytes. Codes of 6 and 8 bits have no such
 * room: they become 16 bits and are summed in 32, those of Q8_0 over a whole stretch. */
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

/* What a type's tiles do: known when they are compiled. */
typedef struct tile_kind {
    int depth; /* steps that are summed in 16 bits; 0 where codes are words */
    int zero;  /* the code that means 0 */
    bool large, minima;
    bool fine; /* BLOCK_FINE */
} tile_kind;

/* Σ q·code over a block, for `height` rows of x and 16 of w, times the scales of a part of a large
 * block. */
INLINE void dot_bytes(const tile_kind kind, const int height, const int8_t *x, const uint8_t *w,
                      const float *scale, __m256i dot[TILE_M][2])
{
    UNROLL
    for (int first = 0; first < STEPS; first += kind.depth) {
        __m256i sum[TILE_M][2];
        UNROLL
        for (int s = 0; s < kind.depth; s++, x += TILE_M * 4, w += STEP_BYTES) {
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
        for (int v = 0; v < 2; v++) {
            __m256i factor = kind.large ? _mm256_loadu_si256((const __m256i *)(scale + v * 8))
                                        : _mm256_set1_epi16(1);
            UNROLL
            for (int i = 0; i < height; i++) {
                __m256i wide = _mm256_madd_epi16(sum[i][v], factor);
                dot[i][v] = first ? _mm256_add_epi32(dot[i][v], wide) : wide;
            }
        }
    }
}

/* The same for words; they begin the sums, or are added to them. */
INLINE void dot_words(const bool begin, const int height, const int16_t *x, const int16_t *w,
                      __m256i dot[TILE_M][2])
{
    UNROLL
    for (int s = 0; s < 2 * STEPS; s++, x += TILE_M * 2, w += TILE_N * 2) {
        __m256i w0 = _mm256_loadu_si256((const __m256i *)w);
        __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + 16));
        UNROLL
        for (int i = 0; i < height; i++) {
            __m256i xi = x_step(x + i * 2);
            __m256i p0 = _mm256_madd_epi16(w0, xi), p1 = _mm256_madd_epi16(w1, xi);
            dot[i][0] = s || !begin ? _mm256_add_epi32(dot[i][0], p0) : p0;
            dot[i][1] = s || !begin ? _mm256_add_epi32(dot[i][1], p1) : p1;
            KEEP_ORDER(dot[i][0]);
            KEEP_ORDER(dot[i][1]);
        }
    }
}

/* A block more for all sums. */
INLINE void add_blocks(const tile_kind kind, const int height, const __m256i dot[TILE_M][2],
                       block_rows x, const float *scale, const float *min,
                       float sum[TILE_M][TILE_N])
{
    UNROLL
    for (int v = 0; v < TILE_N; v += 8) {
        UNROLL
        for (int i = 0; i < height; i++) {
            __m256 s = _mm256_load_ps(sum[i] + v);
            if (kind.large)
                s = add_part(s, dot[i][v / 8], x.scale + i);
            else
                s = add_block(s, dot[i][v / 8], _mm256_loadu_ps(scale + v), kind.zero, x.scale + i,
                              x.sum + i);
            if (kind.minima && !kind.large) s = add_minimum(s, _mm256_loadu_ps(min + v), x.sum + i);
            _mm256_store_ps(sum[i] + v, s);
        }
    }
}

/* What the minima of all parts come to, for row i of x and eight of w. */
INLINE __m256 minima_at(block_rows x, block_panel w, const int i, const int v)
{
    __m256 minima = _mm256_setzero_ps();
    UNROLL
    for (int part = 0; part < BLOCK_STRETCH / BLOCK; part++)
        minima = add_minimum(minima, _mm256_loadu_ps(w.min + part * TILE_N + v),
                             x.sum + part * x.stride + i);
    return minima;
}

/* All parts of a large block are added up: d and dmin remain. */
INLINE void finish_large(const tile_kind kind, const int height, block_rows x, block_panel w,
                         float sum[TILE_M][TILE_N])
{
    UNROLL
    for (int v = 0; v < TILE_N; v += 8) {
        UNROLL
        for (int i = 0; i < height; i++) {
            __m256 parts = _mm256_load_ps(sum[i] + v), d = _mm256_loadu_ps(w.d + v);
            __m256 s = _mm256_setzero_ps();
            if (kind.minima)
                s = add_parts(s, parts, d, minima_at(x, w, i, v), _mm256_loadu_ps(w.dmin + v));
            else
                s = _mm256_fmadd_ps(parts, d, s);
            _mm256_store_ps(sum[i] + v, s);
        }
    }
}

/* Asks for the x of a block of the next tile, `ahead` bytes after this one's. */
INLINE void ask_x(const char *q, int64_t ahead, const int size)
{
    UNROLL
    for (int line = 0; line < BLOCK * TILE_M * size; line += CACHE_LINE)
        _mm_prefetch(q + ahead + line, _MM_HINT_T0);
}

INLINE void tile_fine(const int height, int64_t width, block_rows x, block_panel w, float *c,
                      int64_t ldc, bool accumulate, int n)
{
    const int16_t *q = x.q, *code = w.code;
    const int64_t ahead = width * TILE_M * (int64_t)sizeof *q;
    __m256i dot[TILE_M][2];
    UNROLL
    for (int i = 0; i < height; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
    for (; width > 0; width -= BLOCK, q += BLOCK * TILE_M, code += BLOCK * TILE_N) {
        ask_x((const char *)q, ahead, sizeof *q);
        dot_words(false, height, q, code, dot);
    }
    float sum[TILE_M][TILE_N] __attribute__((aligned(32)));
    UNROLL
    for (int i = 0; i < 2 * height; i++) {
        __m256 largest = _mm256_loadu_ps(w.scale + i % 2 * 8);
        __m256 s = add_stretch(_mm256_setzero_ps(), dot[i / 2][i % 2], largest, x.scale + i / 2);
        _mm256_store_ps(sum[i / 2] + i % 2 * 8, s);
    }
    tile_store(height, (const float(*)[TILE_N])sum, c, ldc, accumulate, n);
}

INLINE void tile_of(const tile_kind kind, const int height, int64_t width, block_rows x,
                    block_panel w, float *c, int64_t ldc, bool accumulate, int n)
{
    if (kind.fine) {
        tile_fine(height, width, x, w, c, ldc, accumulate, n);
        return;
    }
    float sum[TILE_M][TILE_N] __attribute__((aligned(32))) = {{0}};
    const int size = kind.depth ? 1 : 2; /* bytes of a code */
    const char *q = x.q, *code = w.code;
    const float *scale = w.scale, *min = w.min;
    const int64_t ahead = width * TILE_M * size; /* where the next tile's x is */
    block_rows at = x;
    for (; width > 0; width -= BLOCK) {
        ask_x(q, ahead, size);
        __m256i dot[TILE_M][2];
        if (kind.depth)
            dot_bytes(kind, height, (const int8_t *)q, (const uint8_t *)code, scale, dot);
        else
            dot_words(true, height, (const int16_t *)q, (const int16_t *)code, dot);
        add_blocks(kind, height, dot, at, scale, min, sum);
        q += BLOCK * TILE_M * size;
        code += BLOCK * TILE_N * size;
        at.scale += x.stride;
        at.sum += x.stride;
        scale += TILE_N;
        min += TILE_N;
    }
    if (kind.large) finish_large(kind, height, x, w, sum);
    tile_store(height, (const float(*)[TILE_N])sum, c, ldc, accumulate, n);
}

#define TILE(type, ...)                                                                            \
    static void tile_##type(int64_t width, block_rows x, block_panel w, float *c, int64_t ldc,     \
                            bool accumulate, int m, int n)                                         \
    {                                                                                              \
        const tile_kind kind = {__VA_ARGS__};                                                      \
        switch (m) {                                                                               \
        case 1: tile_of(kind, 1, width, x, w, c, ldc, accumulate, n); break;                       \
        case 2: tile_of(kind, 2, width, x, w, c, ldc, accumulate, n); break;                       \
        case 3: tile_of(kind, 3, width, x, w, c, ldc, accumulate, n); break;                       \
        default: tile_of(kind, 4, width, x, w, c, ldc, accumulate, n); break;                      \
        }                                                                                          \
    }
TILE(q4_0, .depth = 8, .zero = 8)
TILE(q5_0, .depth = 4, .zero = 16)
TILE(q5_1, .depth = 4, .minima = true)
TILE(q8_0, .fine = true)
TILE(q4_k, .depth = 8, .large = true, .minima = true)
TILE(q5_k, .depth = 4, .large = true, .minima = true)
TILE(q6_k, .large = true)

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Each of them: one record of an octet, to the panel's place for its rows. */

INLINE void store_step(unsigned char *panel, int step, __m256i codes)
{
    _mm256_storeu_si256((__m256i *)(panel + step * STEP_BYTES), codes);
}

INLINE void unpack_q4_0(const octet_q4_0 *o, unsigned char *code, block_panel to)
{
    _mm256_storeu_ps(to.scale, octet_floats(o->d));
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i both = load_step(o->q[s]);
        store_step(code, s, low_halves(both));
        store_step(code, s + 4, high_halves(both));
    }
}

INLINE void unpack_codes_5(const codes_5 q, unsigned char *code)
{
    __m256i steps[STEPS];
    octet_codes_5(q, steps);
    UNROLL
    for (int s = 0; s < STEPS; s++) store_step(code, s, steps[s]);
}

INLINE void unpack_q5_0(const octet_q5_0 *o, unsigned char *code, block_panel to)
{
    _mm256_storeu_ps(to.scale, octet_floats(o->d));
    unpack_codes_5(o->q, code);
}

INLINE void unpack_q5_1(const octet_q5_1 *o, unsigned char *code, block_panel to)
{
    _mm256_storeu_ps(to.scale, octet_floats(o->d));
    _mm256_storeu_ps(to.min, octet_floats(o->m));
    unpack_codes_5(o->q, code);
}

/* Words: columns 0 and 2, then 1 and 3. */
INLINE void store_words(unsigned char *code, int step, __m256i even, __m256i odd)
{
    store_step(code, 2 * step, even);
    store_step(code, 2 * step + 1, odd);
}

INLINE void unpack_q8_0(const octet_q8_0 *o, int n_blocks, unsigned char *code, float *largest)
{
    __m256i factor[STRETCH_BLOCKS];
    _mm256_storeu_ps(largest, octet_factors(o, n_blocks, factor));
    for (int b = 0; b < n_blocks; b++, code += 2 * BLOCK_BYTES_OF_PANEL) {
        const uint8_t *from = octet_codes_q8_0(o, n_blocks, b);
        UNROLL
        for (int s = 0; s < STEPS; s++, from += STEP) {
            __m256i four = load_step(from);
            store_words(code, s, fine_even(four, factor[b]), fine_odd(four, factor[b]));
        }
    }
}

/* Of Q4_K and Q5_K: scales as pairs of words in the place of floats, minima as floats. */
INLINE void unpack_scales(const uint16_t d[8], const uint16_t dmin[8], const packed_scales scales,
                          block_panel to)
{
    octet_scales of = octet_scales_of(scales);
    _mm256_storeu_ps(to.d, octet_floats(d));
    _mm256_storeu_ps(to.dmin, octet_floats(dmin));
    UNROLL
    for (int part = 0; part < 8; part++) {
        _mm256_storeu_si256((__m256i *)(to.scale + part * TILE_N), part_scales(&of, part));
        _mm256_storeu_ps(to.min + part * TILE_N, part_minima(&of, part));
    }
}

INLINE void unpack_q4_k(const octet_q4_k *o, unsigned char *code, block_panel to)
{
    unpack_scales(o->d, o->dmin, o->scales, to);
    for (int pair = 0; pair < 4; pair++, code += 2 * BLOCK_BYTES_OF_PANEL) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i both = load_step(o->q[pair][s]);
            store_step(code, s, low_halves(both));
            store_step(code, s + STEPS, high_halves(both));
        }
    }
}

INLINE void unpack_q5_k(const octet_q5_k *o, unsigned char *code, block_panel to)
{
    unpack_scales(o->d, o->dmin, o->scales, to);
    for (int part = 0; part < 8; part++, code += BLOCK_BYTES_OF_PANEL)
        unpack_codes_5(o->q[part], code);
}

/* (code - 32)·scale as words. */
INLINE void unpack_q6_k(const octet_q6_k *o, unsigned char *code, block_panel to)
{
    _mm256_storeu_ps(to.d, octet_floats(o->d));
    UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i words[4];
        UNROLL
        for (int i = 0; i < 4; i++) words[i] = octet_words(o->scales[4 * half + i]);
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            step_q6_k step = octet_step_q6_k(o, half, s);
            UNROLL
            for (int i = 0; i < 4; i++) {
                __m256i by_half = octet_half(words[i], s / 4);
                __m256i q = _mm256_sub_epi8(octet_codes_q6_k(step, i), _mm256_set1_epi8(32));
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
                block_panel to = {.scale = panel.scale + at,                                       \
                                  .min = panel.min + at,                                           \
                                  .d = panel.d + first,                                            \
                                  .dmin = panel.dmin + first};                                     \
                unpack_##type(o + (column + k) / block,                                            \
                              (unsigned char *)panel.code + k * TILE_N * code_bytes + first * 4,   \
                              to);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }
UNPACK(q4_0, DSMOE_Q4_0, 1)
UNPACK(q5_0, DSMOE_Q5_0, 1)
UNPACK(q5_1, DSMOE_Q5_1, 1)
UNPACK(q4_k, DSMOE_Q4_K, 1)
UNPACK(q5_k, DSMOE_Q5_K, 1)
UNPACK(q6_k, DSMOE_Q6_K, 2)

static void panel_q8_0(block_panel panel, const void *const octet[2], int64_t column, int64_t width)
{
    for (int first = 0; first < TILE_N; first += BLOCK_OCTET) {
        const octet_q8_0 *o = octet[first / BLOCK_OCTET];
        unpack_q8_0(o + column / BLOCK_STRETCH, (int)(width / BLOCK),
                    (unsigned char *)panel.code + first * 4, panel.scale + first);
    }
}

#define KERNELS(type, form)                                                                        \
    {                                                                                              \
        form, block_interleave_##type##_avx2, panel_##type, tile_##type, block_row_##type##_avx2   \
    }
const block_kernels blocks_avx2[N_DTYPES] = {
    [DSMOE_Q4_0] = KERNELS(q4_0, BLOCK_BYTES), [DSMOE_Q5_0] = KERNELS(q5_0, BLOCK_BYTES),
    [DSMOE_Q5_1] = KERNELS(q5_1, BLOCK_BYTES), [DSMOE_Q8_0] = KERNELS(q8_0, BLOCK_FINE),
    [DSMOE_Q4_K] = KERNELS(q4_k, BLOCK_BYTES), [DSMOE_Q5_K] = KERNELS(q5_k, BLOCK_BYTES),
    [DSMOE_Q6_K] = KERNELS(q6_k, BLOCK_WORDS),
};

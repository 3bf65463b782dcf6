/* avx2_block_rows.c - products of rows of x with weights of block types, straight from octets.
 *
 * Each lane of an octet is one of its rows. So one multiplication of four columns of it by four broadcast
 * columns of x gives sums for eight outputs, and nothing has to be added across lanes. Codes are split once
 * for all rows of x; with five rows or more that is less than a tenth of the work.
 *
 * For codes below 16, the sum of q·code over a whole block of 32 fits in 16 bits: pairs are at most 2·15·127,
 * and eight of these 30480. For codes below 32 half a block fits, for codes below 64 a quarter. The scale of
 * a part of a large block is an integer, so sums are multiplied by it when they are widened to 32 bits.
 * Products of Q8_0 are too large for 16 bits: its codes become words, and are summed in 32 bits over a whole
 * stretch.
 *
 * The limit for one row is how fast memory delivers the weights, and nearly so for two or three. These read
 * several streams at once, which keeps memory busier. */
#include "kernels/avx2_blocks.h"

enum {
    ROWS = AVX2_BLOCK_ROWS,
    STREAMS = 3,             /* the most octets that are read at once */
    AHEAD = 27 * CACHE_LINE, /* how far ahead each stream is prefetched */
};

/* Prefetches what comes AHEAD bytes after the `bytes` bytes at `from`; slot `slot` of `slots` prefetches its
 * share. The instructions are
 * tied to a sum that is being computed. Otherwise the compiler would put them all together, and other reads
 * would wait for the queue to the caches. */
INLINE void ask_ahead(__m256i *sum, const void *from, const int bytes, const int slot,
                      const int slots)
{
    const int lines = (bytes + CACHE_LINE - 1) / CACHE_LINE;
    for (int i = slot * lines / slots; i < (slot + 1) * lines / slots; i++) {
        const char *line = (const char *)from + AHEAD + i * CACHE_LINE;
        __asm__("prefetcht0 %1" : "+x"(*sum) : "m"(*line));
    }
}

/* ---- the parts of x ---------------------------------------------------------------------------- */

/* Of row i: the bytes of a block, the scale of a block or stretch, and the sums of a block. */
INLINE const char *x_bytes(const block_x *x, const int i, int64_t block)
{
    return x->row[i] + block * BLOCK;
}
INLINE const float *x_scale(const block_x *x, const int i, int64_t block)
{
    return (const float *)(x->row[i] + x->scale) + block;
}
INLINE const float *x_sum(const block_x *x, const int i, int64_t block)
{
    return (const float *)(x->row[i] + x->sum) + block;
}
INLINE __m256i x_half_sums(const block_x *x, const int i, int64_t block)
{
    return x_step(x->row[i] + x->half_sum + block * 2 * (int64_t)sizeof(int16_t));
}

/* ---- sums of products -------------------------------------------------------------------------- */

/* How many rows of x and octets are multiplied together: constants of each compiled kernel. */
typedef struct shape {
    int m, n;
} shape;

/* Adds step s, columns 4·s to 4·s + 3 of the block, to the sums of m rows of x; `first` begins new sums. */
INLINE void add_step(const int m, const block_x *x, int64_t block, const int s, const bool first,
                     __m256i codes, __m256i words[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m256i products = _mm256_maddubs_epi16(codes, x_step(x_bytes(x, i, block) + 4 * s));
        words[i] = first ? products : _mm256_add_epi16(words[i], products);
        KEEP_ORDER(words[i]);
    }
}

INLINE __m256i ones(void) { return _mm256_set1_epi16(1); }

/* ---- one block of small types ------------------------------------------------------------------ */

/* Each function adds the products of block b of x with block b of some octets. */

INLINE void add_q4_0(const shape of, const block_x *x, int64_t b,
                     const octet_q4_0 *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    __m256i words[STREAMS][ROWS];
    UNROLL
    for (int s = 0; s < 4; s++) {
        UNROLL
        for (int j = 0; j < of.n; j++) {
            __m256i both = load_step(w[j]->q[s]);
            add_step(of.m, x, b, s, s == 0, low_halves(both), words[j]);
            add_step(of.m, x, b, s + 4, false, high_halves(both), words[j]);
            ask_ahead(&words[j][0], w[j], sizeof *w[j], s, 4);
        }
    }
    UNROLL
    for (int j = 0; j < of.n; j++) {
        __m256 d = octet_floats(w[j]->d);
        UNROLL
        for (int i = 0; i < of.m; i++)
            sums[j][i] = add_block(sums[j][i], _mm256_madd_epi16(words[j][i], ones()), d, 8,
                                   x_scale(x, i, b), x_sum(x, i, b));
    }
}

/* Σ q·code of a block with codes of 5 bits, for one octet. 16 bits hold the sum of half a block. Each half is
 * multiplied by `factors` when it is widened to 32 bits. */
INLINE void dot_codes_5(const int m, const block_x *x, int64_t b, const codes_5 codes,
                        __m256i factors, __m256i dot[ROWS])
{
    __m256i code[STEPS], words[ROWS];
    octet_codes_5(codes, code);
    if (m > 2) __asm__("" : "+m"(code)); /* keeps codes in memory and registers free for sums */
    UNROLL
    for (int half = 0; half < 2; half++) {
        UNROLL
        for (int s = 4 * half; s < 4 * half + 4; s++)
            add_step(m, x, b, s, s % 4 == 0, code[s], words);
        UNROLL
        for (int i = 0; i < m; i++) {
            __m256i wide = _mm256_madd_epi16(words[i], factors);
            dot[i] = half ? _mm256_add_epi32(dot[i], wide) : wide;
        }
    }
}

INLINE void add_q5_0(const shape of, const block_x *x, int64_t b,
                     const octet_q5_0 *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    UNROLL
    for (int j = 0; j < of.n; j++) {
        __m256i dot[ROWS];
        __m256 d = octet_floats(w[j]->d);
        dot_codes_5(of.m, x, b, w[j]->q, ones(), dot);
        ask_ahead(&dot[0], w[j], sizeof *w[j], 0, 1);
        UNROLL
        for (int i = 0; i < of.m; i++)
            sums[j][i] = add_block(sums[j][i], dot[i], d, 16, x_scale(x, i, b), x_sum(x, i, b));
    }
}

INLINE void add_q5_1(const shape of, const block_x *x, int64_t b,
                     const octet_q5_1 *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    UNROLL
    for (int j = 0; j < of.n; j++) {
        __m256i dot[ROWS];
        __m256 d = octet_floats(w[j]->d), min = octet_floats(w[j]->m);
        dot_codes_5(of.m, x, b, w[j]->q, ones(), dot);
        ask_ahead(&dot[0], w[j], sizeof *w[j], 0, 1);
        UNROLL
        for (int i = 0; i < of.m; i++) {
            __m256 sum = add_block(sums[j][i], dot[i], d, 0, x_scale(x, i, b), x_sum(x, i, b));
            sums[j][i] = add_minimum(sum, min, x_sum(x, i, b));
        }
    }
}

/* ---- one block of large types ------------------------------------------------------------------ */

enum { PARTS = BLOCK_STRETCH / BLOCK };

/* The scales of each part as words. */
INLINE void spread_scales(const int m, const octet_scales *of, __m256i scale[PARTS])
{
    UNROLL
    for (int part = 0; part < PARTS; part++) scale[part] = part_scales(of, part);
    if (m > 1) __asm__("" : "+m"(*(__m256i(*)[PARTS])scale));
}

/* The end of a block of Q4_K or Q5_K, when all parts are added up: applies d, the minima and dmin. */
INLINE void finish_parts(const int m, const block_x *x, int64_t b, const octet_scales *of,
                         const uint16_t d[8], const uint16_t dmin[8], const __m256 parts[ROWS],
                         __m256 sums[ROWS])
{
    __m256 min[PARTS], by = octet_floats(d), min_by = octet_floats(dmin);
    UNROLL
    for (int part = 0; part < PARTS; part++) min[part] = part_minima(of, part);
    UNROLL
    for (int i = 0; i < m; i++) {
        __m256 minima = _mm256_setzero_ps();
        UNROLL
        for (int part = 0; part < PARTS; part++)
            minima = add_minimum(minima, min[part], x_sum(x, i, b * PARTS + part));
        sums[i] = add_parts(sums[i], parts[i], by, minima, min_by);
    }
}

/* Two parts of Q4_K, whose codes are in the lower and the upper halves of q. If there are few rows, and so
 * enough registers, both parts are done at once; otherwise one after the other. */
INLINE void add_q4_k_pair(const shape of, const block_x *x, int64_t at,
                          const octet_q4_k *const w[STREAMS], int pair,
                          const __m256i scale[STREAMS][PARTS], __m256 parts[STREAMS][ROWS])
{
    const int turns = of.m > 2 ? 2 : 1;
    UNROLL
    for (int turn = 0; turn < turns; turn++) {
        const bool low = turn == 0, high = turns == 1 || turn == 1;
        __m256i words[2][STREAMS][ROWS];
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            UNROLL
            for (int j = 0; j < of.n; j++) {
                __m256i both = load_step(w[j]->q[pair][s]);
                if (low) add_step(of.m, x, at, s, s == 0, low_halves(both), words[0][j]);
                if (high) add_step(of.m, x, at + 1, s, s == 0, high_halves(both), words[1][j]);
                if (of.m == 1)
                    ask_ahead(&words[1][j][0], w[j], sizeof *w[j], pair * STEPS + s, 4 * STEPS);
                else
                    ask_ahead(&words[high][j][0], w[j]->q[pair], sizeof *w[j] / 4, s + turn * STEPS,
                              turns * STEPS);
            }
        }
        UNROLL
        for (int part = !low; part <= (int)high; part++) {
            UNROLL
            for (int i = 0; i < of.m * of.n; i++) {
                const int row = i % of.m, j = i / of.m;
                __m256i dot = _mm256_madd_epi16(words[part][j][row], scale[j][2 * pair + part]);
                parts[j][row] = add_part(parts[j][row], dot, x_scale(x, row, at + part));
            }
        }
    }
}

INLINE void add_q4_k(const shape of, const block_x *x, int64_t b,
                     const octet_q4_k *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    octet_scales scales[STREAMS];
    __m256i scale[STREAMS][PARTS];
    __m256 parts[STREAMS][ROWS];
    UNROLL
    for (int j = 0; j < of.n; j++) {
        scales[j] = octet_scales_of(w[j]->scales);
        spread_scales(of.m, &scales[j], scale[j]);
        UNROLL
        for (int i = 0; i < of.m; i++) parts[j][i] = _mm256_setzero_ps();
    }
    if (of.m == 1) { /* unrolled: fewest instructions */
        UNROLL
        for (int pair = 0; pair < PARTS / 2; pair++)
            add_q4_k_pair(of, x, b * PARTS + 2 * pair, w, pair, scale, parts);
    } else {
        NO_UNROLL
        for (int pair = 0; pair < PARTS / 2; pair++)
            add_q4_k_pair(of, x, b * PARTS + 2 * pair, w, pair, scale, parts);
    }
    UNROLL
    for (int j = 0; j < of.n; j++)
        finish_parts(of.m, x, b, &scales[j], w[j]->d, w[j]->dmin, parts[j], sums[j]);
}

/* Octets are done one after the other. */
INLINE void add_q5_k(const shape of, const block_x *x, int64_t b,
                     const octet_q5_k *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    NO_UNROLL
    for (int j = 0; j < of.n; j++) {
        octet_scales scales = octet_scales_of(w[j]->scales);
        __m256i scale[PARTS];
        __m256 parts[ROWS];
        spread_scales(of.m, &scales, scale);
        UNROLL
        for (int i = 0; i < of.m; i++) parts[i] = _mm256_setzero_ps();
        NO_UNROLL
        for (int part = 0; part < PARTS; part++) {
            int64_t at = b * PARTS + part;
            __m256i dot[ROWS];
            dot_codes_5(of.m, x, at, w[j]->q[part], scale[part], dot);
            ask_ahead(&dot[0], w[j]->q[part], sizeof *w[j] / PARTS, 0, 1);
            UNROLL
            for (int i = 0; i < of.m; i++) parts[i] = add_part(parts[i], dot[i], x_scale(x, i, at));
        }
        finish_parts(of.m, x, b, &scales, w[j]->d, w[j]->dmin, parts, sums[j]);
    }
}

enum { Q6_K_PART = sizeof(octet_q6_k) / PARTS }; /* bytes of an octet for each part */

/* The codes of one half of a Q6_K block, part by part. */
INLINE void codes_q6_k(const octet_q6_k *w, const int half, __m256i code[4][STEPS])
{
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        step_q6_k step = octet_step_q6_k(w, half, s);
        UNROLL
        for (int i = 0; i < 4; i++) code[i][s] = octet_codes_q6_k(step, i);
    }
    __asm__("" : "+m"(*(__m256i(*)[4][STEPS])code)); /* keeps codes in memory */
}

/* One part of a Q6_K block. Codes are too large by 32, which is corrected with the half sums. The sum of two
 * steps is multiplied by the scale of its half part when it is widened to 32 bits. */
INLINE void add_q6_k_part(const int m, const block_x *x, int64_t at, const __m256i code[STEPS],
                          const octet_q6_k *w, int part, __m256 parts[ROWS])
{
    __m256i words = octet_words(w->scales[part]), dot[ROWS];
    __m256i too_high = _mm256_mullo_epi16(words, _mm256_set1_epi16(-32));
    UNROLL
    for (int i = 0; i < m; i++) dot[i] = _mm256_madd_epi16(too_high, x_half_sums(x, i, at));
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        __m256i scale = octet_half(words, s / 4), first = code[s], second = code[s + 1];
        UNROLL
        for (int i = 0; i < m; i++) {
            const char *q = x_bytes(x, i, at) + 4 * s;
            __m256i sum = _mm256_maddubs_epi16(first, x_step(q));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(second, x_step(q + 4)));
            dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(sum, scale));
            KEEP_ORDER(dot[i]);
        }
        ask_ahead(&dot[0], (const char *)w + part * Q6_K_PART, Q6_K_PART, s / 2, STEPS / 2);
    }
    UNROLL
    for (int i = 0; i < m; i++) parts[i] = add_part(parts[i], dot[i], x_scale(x, i, at));
}

INLINE void add_q6_k(const shape of, const block_x *x, int64_t b,
                     const octet_q6_k *const w[STREAMS], __m256 sums[STREAMS][ROWS])
{
    __m256 parts[STREAMS][ROWS];
    UNROLL
    for (int i = 0; i < of.n * of.m; i++) parts[i / of.m][i % of.m] = _mm256_setzero_ps();
    NO_UNROLL
    for (int turn = 0; turn < 2 * of.n; turn++) { /* half by half, in the order of memory */
        const int half = turn / of.n, j = turn % of.n;
        __m256i code[4][STEPS];
        codes_q6_k(w[j], half, code);
        NO_UNROLL
        for (int i = 4 * half; i < 4 * half + 4; i++)
            add_q6_k_part(of.m, x, b * PARTS + i, code[i % 4], w[j], i, parts[j]);
    }
    UNROLL
    for (int j = 0; j < of.n; j++) {
        __m256 d = octet_floats(w[j]->d);
        UNROLL
        for (int i = 0; i < of.m; i++) sums[j][i] = _mm256_fmadd_ps(parts[j][i], d, sums[j][i]);
    }
}

/* ---- a stretch of Q8_0 --------------------------------------------------------------------------- */

/* One block of the stretch. Its x begins `at` bytes after the beginning of the row. */
INLINE void add_q8_0_block(const shape of, const block_x *x, int64_t at,
                           const uint8_t *const codes[STREAMS], const __m256i factor[STREAMS],
                           __m256i dot[STREAMS][ROWS])
{
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i even[STREAMS], odd[STREAMS];
        UNROLL
        for (int j = 0; j < of.n; j++) {
            __m256i four = load_step(codes[j] + s * STEP);
            even[j] = fine_even(four, factor[j]);
            odd[j] = fine_odd(four, factor[j]);
        }
        UNROLL
        for (int i = 0; i < of.m; i++) {
            const char *q = x->row[i] + at + 8 * s;
            __m256i x_even = x_step(q), x_odd = x_step(q + 4);
            UNROLL
            for (int j = 0; j < of.n; j++) {
                __m256i first = _mm256_madd_epi16(even[j], x_even);
                __m256i second = _mm256_madd_epi16(odd[j], x_odd);
                dot[j][i] = _mm256_add_epi32(dot[j][i], _mm256_add_epi32(first, second));
                KEEP_ORDER(dot[j][i]);
            }
        }
        UNROLL
        for (int j = 0; j < of.n; j++)
            ask_ahead(&dot[j][0], codes[j], BLOCK_OCTET * sizeof(block_q8_0), s, STEPS);
    }
}

INLINE void add_q8_0(const shape of, const block_x *x, int64_t stretch,
                     const octet_q8_0 *const w[STREAMS], const int n_blocks,
                     __m256 sums[STREAMS][ROWS])
{
    int64_t at = stretch * BLOCK_STRETCH * (int64_t)sizeof(int16_t);
    __m256i dot[STREAMS][ROWS], factors[STREAMS][STRETCH_BLOCKS];
    __m256 largest[STREAMS];
    UNROLL
    for (int j = 0; j < of.n; j++) {
        largest[j] = octet_factors(w[j], n_blocks, factors[j]);
        UNROLL
        for (int i = 0; i < of.m; i++) dot[j][i] = _mm256_setzero_si256();
    }
    NO_UNROLL
    for (int b = 0; b < n_blocks; b++, at += BLOCK * (int64_t)sizeof(int16_t)) {
        const uint8_t *codes[STREAMS];
        __m256i factor[STREAMS];
        UNROLL
        for (int j = 0; j < of.n; j++) {
            codes[j] = octet_codes_q8_0(w[j], n_blocks, b);
            factor[j] = factors[j][b];
        }
        add_q8_0_block(of, x, at, codes, factor, dot);
    }
    UNROLL
    for (int i = 0; i < of.n * of.m; i++) {
        const int row = i % of.m, j = i / of.m;
        sums[j][row] = add_stretch(sums[j][row], dot[j][row], largest[j], x_scale(x, row, stretch));
    }
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* Adds the products with columns [column, column + width) of some octets, at most a stretch. */
typedef void stretch_fn(const shape of, const block_x *x, int64_t column, int64_t width,
                        const char *const octet[STREAMS], __m256 sums[STREAMS][ROWS]);

#define STRETCH(type, TYPE)                                                                        \
    INLINE void stretch_##type(const shape of, const block_x *x, int64_t column, int64_t width,    \
                               const char *const octet[STREAMS], __m256 sums[STREAMS][ROWS])       \
    {                                                                                              \
        const int block = dtype_table[TYPE].block;                                                 \
        for (int64_t b = column / block; b < (column + width) / block; b++) {                      \
            const octet_##type *at[STREAMS];                                                       \
            UNROLL                                                                                 \
            for (int j = 0; j < of.n; j++) at[j] = (const octet_##type *)octet[j] + b;             \
            add_##type(of, x, b, at, sums);                                                        \
        }                                                                                          \
    }
STRETCH(q4_0, DSMOE_Q4_0)
STRETCH(q5_0, DSMOE_Q5_0)
STRETCH(q5_1, DSMOE_Q5_1)
STRETCH(q4_k, DSMOE_Q4_K)
STRETCH(q5_k, DSMOE_Q5_K)
STRETCH(q6_k, DSMOE_Q6_K)

INLINE void stretch_q8_0(const shape of, const block_x *x, int64_t column, int64_t width,
                         const char *const octet[STREAMS], __m256 sums[STREAMS][ROWS])
{
    int64_t stretch = column / BLOCK_STRETCH;
    const octet_q8_0 *at[STREAMS];
    UNROLL
    for (int j = 0; j < of.n; j++) at[j] = (const octet_q8_0 *)octet[j] + stretch;
    if (width == BLOCK_STRETCH)
        add_q8_0(of, x, stretch, at, STRETCH_BLOCKS, sums);
    else
        add_q8_0(of, x, stretch, at, (int)(width / BLOCK), sums);
}

/* Octets that are read at the same time. They are `apart` bytes from each other, and their columns of y are
 * y_apart floats from each other. */
typedef struct streams {
    const char *at;
    int64_t apart, y_apart;
} streams;

/* Each stretch is summed separately and then added to the sums before it. */
INLINE void run_octets(stretch_fn *stretch, const shape of, const block_x *x, streams w, int64_t k,
                       float *y, int64_t ldy)
{
    const char *octet[STREAMS];
    __m256 sums[STREAMS][ROWS], more[STREAMS][ROWS];
    UNROLL
    for (int j = 0; j < of.n; j++) octet[j] = w.at + j * w.apart;
    UNROLL
    for (int i = 0; i < of.n * of.m; i++) sums[i / of.m][i % of.m] = _mm256_setzero_ps();
    for (int64_t column = 0; column < k; column += BLOCK_STRETCH) {
        int64_t width = k - column < BLOCK_STRETCH ? k - column : BLOCK_STRETCH;
        UNROLL
        for (int i = 0; i < of.n * of.m; i++) more[i / of.m][i % of.m] = _mm256_setzero_ps();
        stretch(of, x, column, width, octet, more);
        UNROLL
        for (int i = 0; i < of.n * of.m; i++) {
            const int row = i % of.m, j = i / of.m;
            sums[j][row] = _mm256_add_ps(sums[j][row], more[j][row]);
        }
    }
    UNROLL
    for (int i = 0; i < of.n * of.m; i++) {
        const int row = i % of.m, j = i / of.m;
        _mm256_storeu_ps(y + row * ldy + j * w.y_apart, sums[j][row]);
    }
}

/* Prefetches the beginnings of all streams, for which ask_ahead would be too late. */
INLINE void ask_first(const int n, const char *first, int64_t apart)
{
    if (apart == 0) return;
    for (int64_t i = 0; i < AHEAD; i += CACHE_LINE)
        for (int j = 0; j < n; j++) _mm_prefetch(first + j * apart + i, _MM_HINT_T0);
}

INLINE void run_rows(stretch_fn *stretch, dsmoe_dtype type, const shape of, const block_x *x,
                     const char *w, int64_t n, int64_t k, float *y, int64_t ldy)
{
    int64_t bytes = BLOCK_OCTET * dtype_bytes(type, k), length = n / of.n, i = 0;
    streams several = {w, length * bytes, length * BLOCK_OCTET}, one = {.at = w};
    ask_first(of.n, w, several.apart);
    for (; i < length; i++, several.at += bytes)
        run_octets(stretch, of, x, several, k, y + i * BLOCK_OCTET, ldy);
    if (of.n == 1) return;
    for (i = length * of.n; i < n; i++) {
        one.at = w + i * bytes;
        run_octets(stretch, (shape){of.m, 1}, x, one, k, y + i * BLOCK_OCTET, ldy);
    }
}

#define RUN_ROWS(type, TYPE)                                                                       \
    static void rows_##type(int m, const block_x *x, const void *w, int64_t n, int64_t k,          \
                            float *y, int64_t ldy)                                                 \
    {                                                                                              \
        switch (m) {                                                                               \
        case 1: run_rows(stretch_##type, TYPE, (shape){1, 3}, x, w, n, k, y, ldy); break;          \
        case 2: run_rows(stretch_##type, TYPE, (shape){2, 2}, x, w, n, k, y, ldy); break;          \
        case 3: run_rows(stretch_##type, TYPE, (shape){3, 2}, x, w, n, k, y, ldy); break;          \
        case 4: run_rows(stretch_##type, TYPE, (shape){4, 1}, x, w, n, k, y, ldy); break;          \
        case 5: run_rows(stretch_##type, TYPE, (shape){5, 1}, x, w, n, k, y, ldy); break;          \
        case 6: run_rows(stretch_##type, TYPE, (shape){6, 1}, x, w, n, k, y, ldy); break;          \
        case 7: run_rows(stretch_##type, TYPE, (shape){7, 1}, x, w, n, k, y, ldy); break;          \
        default: run_rows(stretch_##type, TYPE, (shape){8, 1}, x, w, n, k, y, ldy); break;         \
        }                                                                                          \
    }
RUN_ROWS(q4_0, DSMOE_Q4_0)
RUN_ROWS(q5_0, DSMOE_Q5_0)
RUN_ROWS(q5_1, DSMOE_Q5_1)
RUN_ROWS(q8_0, DSMOE_Q8_0)
RUN_ROWS(q4_k, DSMOE_Q4_K)
RUN_ROWS(q5_k, DSMOE_Q5_K)
RUN_ROWS(q6_k, DSMOE_Q6_K)

/* ---- many rows of Q8_0 ----------------------------------------------------------------------------- */

/* The codes of a stretch as pairs of words. Making words of Q8_0 takes more work than splitting other codes,
 * so they are kept for all groups of rows. */
typedef __m256i stretch_words[STRETCH_BLOCKS * STEPS][2];

INLINE __m256 words_q8_0(const octet_q8_0 *w, const int n_blocks, stretch_words words)
{
    __m256i factors[STRETCH_BLOCKS];
    __m256 largest = octet_factors(w, n_blocks, factors);
    const uint8_t *codes = octet_codes_q8_0(w, n_blocks, 0);
    for (int s = 0; s < n_blocks * STEPS; s++) {
        __m256i four = load_step(codes + s * STEP), factor = factors[s / STEPS];
        words[s][0] = fine_even(four, factor);
        words[s][1] = fine_odd(four, factor);
        if (s % 2) _mm_prefetch(codes + AHEAD + s * STEP, _MM_HINT_T0);
    }
    return largest;
}

/* Adds a stretch for m rows of x and two octets, which share the loads of x. There are registers for four
 * rows. */
INLINE void add_words(const int m, const block_x *x, int64_t stretch, const int n_steps,
                      const stretch_words words[2], const __m256 largest[2], __m256 (*sums)[2])
{
    int64_t at = stretch * BLOCK_STRETCH * (int64_t)sizeof(int16_t);
    __m256i dot[4][2];
    UNROLL
    for (int i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
    UNROLL_4
    for (int s = 0; s < n_steps; s++, at += 8) {
        UNROLL
        for (int pair = 0; pair < 2; pair++) {
            __m256i first = words[0][s][pair], second = words[1][s][pair];
            UNROLL
            for (int i = 0; i < m; i++) {
                __m256i two = x_step(x->row[i] + at + 4 * pair);
                dot[i][0] = _mm256_add_epi32(dot[i][0], _mm256_madd_epi16(first, two));
                dot[i][1] = _mm256_add_epi32(dot[i][1], _mm256_madd_epi16(second, two));
                KEEP_ORDER(dot[i][0]);
                KEEP_ORDER(dot[i][1]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < 2 * m; i++) {
        __m256 more = add_stretch(_mm256_setzero_ps(), dot[i / 2][i % 2], largest[i % 2],
                                  x_scale(x, i / 2, stretch));
        sums[i / 2][i % 2] = _mm256_add_ps(sums[i / 2][i % 2], more);
    }
}

/* Products of m rows of x with two octets. */
static void run_pair_q8_0(int m, const block_x *x, const octet_q8_0 *const w[2], int64_t k,
                          float *y, int64_t ldy)
{
    __m256 sums[BLOCK_ROWS_MAX][2];
    for (int i = 0; i < m; i++) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
    for (int64_t s = 0; s * BLOCK_STRETCH < k; s++) {
        int64_t left = k / BLOCK - s * STRETCH_BLOCKS;
        const int n_blocks = left < STRETCH_BLOCKS ? (int)left : STRETCH_BLOCKS;
        stretch_words words[2];
        const __m256 largest[2] = {words_q8_0(w[0] + s, n_blocks, words[0]),
                                   words_q8_0(w[1] + s, n_blocks, words[1])};
        block_x four = *x;
        for (int i = 0; i < m; i += 4) {
            memcpy(four.row, x->row + i, 4 * sizeof *x->row);
            const stretch_words *made = (const stretch_words *)words;
            switch (m - i) {
            case 1: add_words(1, &four, s, n_blocks * STEPS, made, largest, sums + i); break;
            case 2: add_words(2, &four, s, n_blocks * STEPS, made, largest, sums + i); break;
            case 3: add_words(3, &four, s, n_blocks * STEPS, made, largest, sums + i); break;
            default: add_words(4, &four, s, n_blocks * STEPS, made, largest, sums + i); break;
            }
        }
    }
    for (int i = 0; i < m; i++, y += ldy) {
        _mm256_storeu_ps(y, sums[i][0]);
        _mm256_storeu_ps(y + BLOCK_OCTET, sums[i][1]);
    }
}

/* Products of m rows of x with n octets, group of rows by group, while the octets stay in a cache. */
static void run_groups_q8_0(int m, const block_x *x, const char *w, int64_t n, int64_t k, float *y,
                            int64_t ldy)
{
    block_x some = *x;
    for (int first = 0; first < m; first += ROWS) {
        int here = m - first < ROWS ? m - first : ROWS;
        memcpy(some.row, x->row + first, (size_t)here * sizeof *x->row);
        rows_q8_0(here, &some, w, n, k, y + first * ldy, ldy);
    }
}

/* With more than two groups of rows, words are made and kept; with fewer that does not pay. */
static void many_rows_q8_0(int m, const block_x *x, const void *w, int64_t n, int64_t k, float *y,
                           int64_t ldy)
{
    int64_t bytes = BLOCK_OCTET * dtype_bytes(DSMOE_Q8_0, k), i = 0;
    const char *at = w;
    for (; m > 2 * ROWS && i + 2 <= n; i += 2, at += 2 * bytes) {
        const octet_q8_0 *two[2] = {(const octet_q8_0 *)at, (const octet_q8_0 *)(at + bytes)};
        run_pair_q8_0(m, x, two, k, y + i * BLOCK_OCTET, ldy);
    }
    const int64_t together = m > ROWS ? 8 : n;
    for (; i < n; i += together, at += together * bytes)
        run_groups_q8_0(m, x, at, n - i < together ? n - i : together, k, y + i * BLOCK_OCTET, ldy);
}

#define KERNELS(type, form)                                                                        \
    {                                                                                              \
        form, ROWS, block_interleave_##type##_avx2, rows_##type                                    \
    }
const block_kernels blocks_avx2[N_DTYPES] = {
    [DSMOE_Q4_0] = KERNELS(q4_0, BLOCK_BYTES),
    [DSMOE_Q5_0] = KERNELS(q5_0, BLOCK_BYTES),
    [DSMOE_Q5_1] = KERNELS(q5_1, BLOCK_BYTES),
    [DSMOE_Q8_0] = {BLOCK_FINE, BLOCK_ROWS_MAX, block_interleave_q8_0_avx2, many_rows_q8_0},
    [DSMOE_Q4_K] = KERNELS(q4_k, BLOCK_BYTES),
    [DSMOE_Q5_K] = KERNELS(q5_k, BLOCK_BYTES),
    [DSMOE_Q6_K] = KERNELS(q6_k, BLOCK_BYTES),
};

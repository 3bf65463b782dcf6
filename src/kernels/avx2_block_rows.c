/* avx2_block_rows.c - some rows of x against rows of block types, straight from octets.
 *
 * An octet's lanes are its rows, so that one multiplication of four columns of it by four broadcast
 * columns of x gives sums for eight outputs, and nothing has to be added across lanes. Codes are split
 * once for all rows of x; from five rows on that is less than a tenth of the work.
 *
 * Codes below 16 times q leave room in 16 bits for the sum of a whole block of 32: pairs are at most
 * 2·15·127, eight deep 30480. With codes below 32 it is half a block, with codes below 64 a quarter. The
 * scale of a part of a large block, a whole number itself, is multiplied with on the way to 32 bits.
 * Only Q8_0 has no such room: its codes become words and are summed in 32 bits over a whole stretch.
 *
 * One row is limited by how fast memory brings the weights, and two or three nearly so: they read from
 * several places at once, which keeps memory busier. */
#include "kernels/avx2_blocks.h"

enum {
    ROWS = AVX2_BLOCK_ROWS,
    STREAMS = 3,             /* at most */
    AHEAD = 27 * CACHE_LINE, /* how far ahead memory is asked, in each stream */
};

/* Asks for lines further on, an even share of them in each of some slots. They are tied to a sum that is
 * in work: a compiler would rather ask for all at once, and then whatever is read waits for the queue to
 * the caches. */
INLINE void ask_ahead(__m256i *sum, const void *from, const int bytes, const int slot,
                      const int slots)
{
    const int lines = (bytes + CACHE_LINE - 1) / CACHE_LINE;
    for (int i = slot * lines / slots; i < (slot + 1) * lines / slots; i++) {
        const char *line = (const char *)from + AHEAD + i * CACHE_LINE;
        __asm__("prefetcht0 %1" : "+x"(*sum) : "m"(*line));
    }
}

/* ---- what there is of x ------------------------------------------------------------------------ */

/* Of row i: the bytes of a block, the scale of that block or stretch, and the sums. */
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

/* Codes of four columns, in work. */
INLINE __m256i kept(__m256i codes)
{
    KEEP_ORDER(codes);
    return codes;
}

/* One step more for m rows of x, the first of them or not: the block's columns from 4·s on. */
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

/* Block b of x against that of an octet. */
INLINE void add_q4_0(const int m, const block_x *x, int64_t b, const octet_q4_0 *w,
                     __m256 sums[ROWS])
{
    __m256i words[ROWS];
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i both = load_step(w->q[s % 4]);
        add_step(m, x, b, s, s == 0, kept(s < 4 ? low_halves(both) : high_halves(both)), words);
        ask_ahead(&words[0], w, sizeof *w, s, STEPS);
    }
    __m256 d = octet_floats(w->d);
    UNROLL
    for (int i = 0; i < m; i++)
        sums[i] = add_block(sums[i], _mm256_madd_epi16(words[i], ones()), d, 8, x_scale(x, i, b),
                            x_sum(x, i, b));
}

/* Σ q·code of a block with codes of 5 bits: 16 bits hold half of it. Each half is multiplied by
 * `factors` on its way to 32. */
INLINE void dot_codes_5(const int m, const block_x *x, int64_t b, const codes_5 codes,
                        __m256i factors, __m256i dot[ROWS])
{
    __m256i code[STEPS], words[ROWS];
    octet_codes_5(codes, code);
    if (m > 2) __asm__("" : "+m"(code)); /* operands from memory: registers are for sums */
    UNROLL
    for (int half = 0; half < 2; half++) {
        UNROLL
        for (int s = 4 * half; s < 4 * half + 4; s++)
            add_step(m, x, b, s, s % 4 == 0, kept(code[s]), words);
        UNROLL
        for (int i = 0; i < m; i++) {
            __m256i wide = _mm256_madd_epi16(words[i], factors);
            dot[i] = half ? _mm256_add_epi32(dot[i], wide) : wide;
        }
    }
}

INLINE void add_q5_0(const int m, const block_x *x, int64_t b, const octet_q5_0 *w,
                     __m256 sums[ROWS])
{
    __m256i dot[ROWS];
    dot_codes_5(m, x, b, w->q, ones(), dot);
    ask_ahead(&dot[0], w, sizeof *w, 0, 1);
    __m256 d = octet_floats(w->d);
    UNROLL
    for (int i = 0; i < m; i++)
        sums[i] = add_block(sums[i], dot[i], d, 16, x_scale(x, i, b), x_sum(x, i, b));
}

INLINE void add_q5_1(const int m, const block_x *x, int64_t b, const octet_q5_1 *w,
                     __m256 sums[ROWS])
{
    __m256i dot[ROWS];
    dot_codes_5(m, x, b, w->q, ones(), dot);
    ask_ahead(&dot[0], w, sizeof *w, 0, 1);
    __m256 d = octet_floats(w->d), min = octet_floats(w->m);
    UNROLL
    for (int i = 0; i < m; i++) {
        sums[i] = add_block(sums[i], dot[i], d, 0, x_scale(x, i, b), x_sum(x, i, b));
        sums[i] = add_minimum(sums[i], min, x_sum(x, i, b));
    }
}

/* ---- one block of large types ------------------------------------------------------------------ */

enum { PARTS = BLOCK_STRETCH / BLOCK };

/* Scales of all parts, where each part finds its own. */
INLINE void spread_scales(const octet_scales *of, __m256i scale[PARTS])
{
    UNROLL
    for (int part = 0; part < PARTS; part++) scale[part] = part_scales(of, part);
    __asm__("" : "+m"(*(__m256i(*)[PARTS])scale));
}

/* All parts of Q4_K or Q5_K are added up: what the minima come to, d and dmin remain. */
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

/* One part of Q4_K: codes in the lower or the upper halves of q. */
INLINE void add_q4_k_part(const int m, const block_x *x, int64_t at, const uint8_t (*q)[STEP],
                          const bool upper, __m256i scale, __m256 parts[ROWS])
{
    __m256i words[ROWS];
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i both = load_step(q[s]);
        add_step(m, x, at, s, s == 0, kept(upper ? high_halves(both) : low_halves(both)), words);
        ask_ahead(&words[0], q, sizeof(octet_q4_k) / 4, s + upper * STEPS, 2 * STEPS);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        parts[i] = add_part(parts[i], _mm256_madd_epi16(words[i], scale), x_scale(x, i, at));
}

INLINE void add_q4_k(const int m, const block_x *x, int64_t b, const octet_q4_k *w,
                     __m256 sums[ROWS])
{
    octet_scales of = octet_scales_of(w->scales);
    __m256i scale[PARTS];
    __m256 parts[ROWS];
    spread_scales(&of, scale);
    UNROLL
    for (int i = 0; i < m; i++) parts[i] = _mm256_setzero_ps();
    NO_UNROLL
    for (int pair = 0; pair < PARTS / 2; pair++) {
        int64_t at = b * PARTS + 2 * pair;
        add_q4_k_part(m, x, at, w->q[pair], false, scale[2 * pair], parts);
        add_q4_k_part(m, x, at + 1, w->q[pair], true, scale[2 * pair + 1], parts);
    }
    finish_parts(m, x, b, &of, w->d, w->dmin, parts, sums);
}

INLINE void add_q5_k(const int m, const block_x *x, int64_t b, const octet_q5_k *w,
                     __m256 sums[ROWS])
{
    octet_scales of = octet_scales_of(w->scales);
    __m256i scale[PARTS];
    __m256 parts[ROWS];
    spread_scales(&of, scale);
    UNROLL
    for (int i = 0; i < m; i++) parts[i] = _mm256_setzero_ps();
    NO_UNROLL
    for (int part = 0; part < PARTS; part++) {
        int64_t at = b * PARTS + part;
        __m256i dot[ROWS];
        dot_codes_5(m, x, at, w->q[part], scale[part], dot);
        ask_ahead(&dot[0], w->q[part], sizeof *w / PARTS, 0, 1);
        UNROLL
        for (int i = 0; i < m; i++) parts[i] = add_part(parts[i], dot[i], x_scale(x, i, at));
    }
    finish_parts(m, x, b, &of, w->d, w->dmin, parts, sums);
}

enum { Q6_K_PART = sizeof(octet_q6_k) / PARTS }; /* bytes of an octet */

/* The codes of one half of a Q6_K block, part by part. */
INLINE void codes_q6_k(const octet_q6_k *w, const int half, __m256i code[4][STEPS])
{
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        step_q6_k step = octet_step_q6_k(w, half, s);
        UNROLL
        for (int i = 0; i < 4; i++) code[i][s] = octet_codes_q6_k(step, i);
    }
    __asm__("" : "+m"(*(__m256i(*)[4][STEPS])code)); /* operands from memory */
}

/* One part of a Q6_K block. Codes are too high by 32. The scale of half a part is multiplied with where
 * two steps leave 16 bits. */
INLINE void add_q6_k_part(const int m, const block_x *x, int64_t at, const __m256i code[STEPS],
                          const octet_q6_k *w, int part, __m256 parts[ROWS])
{
    __m256i words = octet_words(w->scales[part]), dot[ROWS];
    __m256i too_high = _mm256_mullo_epi16(words, _mm256_set1_epi16(-32));
    UNROLL
    for (int i = 0; i < m; i++) dot[i] = _mm256_madd_epi16(too_high, x_half_sums(x, i, at));
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        __m256i scale = kept(octet_half(words, s / 4)), first = code[s], second = code[s + 1];
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

INLINE void add_q6_k(const int m, const block_x *x, int64_t b, const octet_q6_k *w,
                     __m256 sums[ROWS])
{
    __m256 parts[ROWS];
    UNROLL
    for (int i = 0; i < m; i++) parts[i] = _mm256_setzero_ps();
    NO_UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i code[4][STEPS];
        codes_q6_k(w, half, code);
        NO_UNROLL
        for (int i = 0; i < 4; i++)
            add_q6_k_part(m, x, b * PARTS + 4 * half + i, code[i], w, 4 * half + i, parts);
    }
    __m256 d = octet_floats(w->d);
    UNROLL
    for (int i = 0; i < m; i++) sums[i] = _mm256_fmadd_ps(parts[i], d, sums[i]);
}

/* ---- a stretch of Q8_0 --------------------------------------------------------------------------- */

INLINE void add_q8_0(const int m, const block_x *x, int64_t stretch, const octet_q8_0 *w,
                     const int n_blocks, __m256 sums[ROWS])
{
    __m256i dot[ROWS], factors[STRETCH_BLOCKS];
    __m256 largest = octet_factors(w, n_blocks, factors);
    const uint8_t *codes = octet_codes_q8_0(w, n_blocks, 0);
    int64_t at = stretch * BLOCK_STRETCH * (int64_t)sizeof(int16_t);
    UNROLL
    for (int i = 0; i < m; i++) dot[i] = _mm256_setzero_si256();
    NO_UNROLL
    for (int b = 0; b < n_blocks; b++, codes += STEPS * STEP, at += BLOCK * 2) {
        __m256i factor = factors[b];
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i four = load_step(codes + s * STEP);
            __m256i even = fine_even(four, factor), odd = fine_odd(four, factor);
            UNROLL
            for (int i = 0; i < m; i++) {
                const char *q = x->row[i] + at + 8 * s;
                __m256i first = _mm256_madd_epi16(even, x_step(q));
                __m256i second = _mm256_madd_epi16(odd, x_step(q + 4));
                dot[i] = _mm256_add_epi32(dot[i], _mm256_add_epi32(first, second));
                KEEP_ORDER(dot[i]);
            }
            ask_ahead(&dot[0], codes, BLOCK_OCTET * sizeof(block_q8_0), s, STEPS);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        sums[i] = add_stretch(sums[i], dot[i], largest, x_scale(x, i, stretch));
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* Columns [column, column + width) of an octet, at most a stretch. */
typedef void stretch_fn(const int m, const block_x *x, int64_t column, int64_t width,
                        const void *octet, __m256 sums[ROWS]);

#define STRETCH(type, TYPE)                                                                        \
    INLINE void stretch_##type(const int m, const block_x *x, int64_t column, int64_t width,       \
                               const void *octet, __m256 sums[ROWS])                               \
    {                                                                                              \
        const int block = dtype_table[TYPE].block;                                                 \
        for (int64_t b = column / block; b < (column + width) / block; b++)                        \
            add_##type(m, x, b, (const octet_##type *)octet + b, sums);                            \
    }
STRETCH(q4_0, DSMOE_Q4_0)
STRETCH(q5_0, DSMOE_Q5_0)
STRETCH(q5_1, DSMOE_Q5_1)
STRETCH(q4_k, DSMOE_Q4_K)
STRETCH(q5_k, DSMOE_Q5_K)
STRETCH(q6_k, DSMOE_Q6_K)

INLINE void stretch_q8_0(const int m, const block_x *x, int64_t column, int64_t width,
                         const void *octet, __m256 sums[ROWS])
{
    int64_t stretch = column / BLOCK_STRETCH;
    const octet_q8_0 *w = (const octet_q8_0 *)octet + stretch;
    if (width == BLOCK_STRETCH)
        add_q8_0(m, x, stretch, w, STRETCH_BLOCKS, sums);
    else
        add_q8_0(m, x, stretch, w, (int)(width / BLOCK), sums);
}

/* What memory brings: some octets `apart` bytes from each other, of which y gets eight columns each,
 * y_apart from each other. */
typedef struct streams {
    const char *at;
    int64_t apart, y_apart;
} streams;

/* Sums run over a stretch and then join those before: a NaN or a large number in one of them changes
 * nothing about how the others are rounded. */
INLINE void run_octets(stretch_fn *stretch, const int m, const int n, const block_x *x, streams w,
                       int64_t k, float *y, int64_t ldy)
{
    __m256 sums[STREAMS][ROWS];
    UNROLL
    for (int i = 0; i < n * m; i++) sums[i / m][i % m] = _mm256_setzero_ps();
    for (int64_t column = 0; column < k; column += BLOCK_STRETCH) {
        int64_t width = k - column < BLOCK_STRETCH ? k - column : BLOCK_STRETCH;
        NO_UNROLL
        for (int j = 0; j < n; j++) {
            __m256 more[ROWS];
            UNROLL
            for (int i = 0; i < m; i++) more[i] = _mm256_setzero_ps();
            stretch(m, x, column, width, w.at + j * w.apart, more);
            UNROLL
            for (int i = 0; i < m; i++) sums[j][i] = _mm256_add_ps(sums[j][i], more[i]);
        }
    }
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) _mm256_storeu_ps(y + i * ldy + j * w.y_apart, sums[j][i]);
}

/* The beginnings of all streams, which ask_ahead comes too late for. */
INLINE void ask_first(const int n, const char *first, int64_t apart)
{
    if (apart == 0) return;
    for (int64_t i = 0; i < AHEAD; i += CACHE_LINE)
        for (int j = 0; j < n; j++) _mm_prefetch(first + j * apart + i, _MM_HINT_T0);
}

INLINE void run_rows(stretch_fn *stretch, dsmoe_dtype type, const int m, const int n_streams,
                     const block_x *x, const char *w, int64_t n, int64_t k, float *y, int64_t ldy)
{
    int64_t bytes = BLOCK_OCTET * dtype_bytes(type, k), length = n / n_streams, i = 0;
    streams several = {w, length * bytes, length * BLOCK_OCTET};
    ask_first(n_streams, w, several.apart);
    for (; i < length; i++, several.at += bytes)
        run_octets(stretch, m, n_streams, x, several, k, y + i * BLOCK_OCTET, ldy);
    for (i = length * n_streams; i < n; i++)
        run_octets(stretch, m, 1, x, (streams){.at = w + i * bytes}, k, y + i * BLOCK_OCTET, ldy);
}

#define RUN_ROWS(type, TYPE)                                                                       \
    static void rows_##type(int m, const block_x *x, const void *w, int64_t n, int64_t k,          \
                            float *y, int64_t ldy)                                                 \
    {                                                                                              \
        switch (m) {                                                                               \
        case 1: run_rows(stretch_##type, TYPE, 1, 3, x, w, n, k, y, ldy); break;                   \
        case 2: run_rows(stretch_##type, TYPE, 2, 2, x, w, n, k, y, ldy); break;                   \
        case 3: run_rows(stretch_##type, TYPE, 3, 2, x, w, n, k, y, ldy); break;                   \
        case 4: run_rows(stretch_##type, TYPE, 4, 1, x, w, n, k, y, ldy); break;                   \
        case 5: run_rows(stretch_##type, TYPE, 5, 1, x, w, n, k, y, ldy); break;                   \
        case 6: run_rows(stretch_##type, TYPE, 6, 1, x, w, n, k, y, ldy); break;                   \
        case 7: run_rows(stretch_##type, TYPE, 7, 1, x, w, n, k, y, ldy); break;                   \
        default: run_rows(stretch_##type, TYPE, 8, 1, x, w, n, k, y, ldy); break;                  \
        }                                                                                          \
    }
RUN_ROWS(q4_0, DSMOE_Q4_0)
RUN_ROWS(q5_0, DSMOE_Q5_0)
RUN_ROWS(q5_1, DSMOE_Q5_1)
RUN_ROWS(q8_0, DSMOE_Q8_0)
RUN_ROWS(q4_k, DSMOE_Q4_K)
RUN_ROWS(q5_k, DSMOE_Q5_K)
RUN_ROWS(q6_k, DSMOE_Q6_K)

#define KERNELS(type, form)                                                                        \
    {                                                                                              \
        form, block_interleave_##type##_avx2, rows_##type                                          \
    }
const block_kernels blocks_avx2[N_DTYPES] = {
    [DSMOE_Q4_0] = KERNELS(q4_0, BLOCK_BYTES), [DSMOE_Q5_0] = KERNELS(q5_0, BLOCK_BYTES),
    [DSMOE_Q5_1] = KERNELS(q5_1, BLOCK_BYTES), [DSMOE_Q8_0] = KERNELS(q8_0, BLOCK_FINE),
    [DSMOE_Q4_K] = KERNELS(q4_k, BLOCK_BYTES), [DSMOE_Q5_K] = KERNELS(q5_k, BLOCK_BYTES),
    [DSMOE_Q6_K] = KERNELS(q6_k, BLOCK_BYTES),
};

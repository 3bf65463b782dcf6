/* avx2_block_rows.c - one row of x against rows of block types: what decoding a token is made of, and
 * limited by how fast memory brings the weights.
 *
 * An octet's lanes are its rows. Products of codes and x are summed in 16 bits over as many columns as
 * fit (see avx2_block_tiles.c), so that most instructions are those that nothing can do without. Some
 * octets go together: they share the loads of x, and memory is busier with more than one stream. */
#include "kernels/avx2_blocks.h"

enum {
    STREAMS = 3,
    AHEAD = 27 * CACHE_LINE, /* how far ahead memory is asked, in each stream */
};

/* Asks for lines of a record further on, an even share of them in each of some slots. They are tied to a
 * sum that is in work: a compiler would rather ask for all at once, and then whatever is read waits for
 * the queue to the caches. */
INLINE void ask_ahead(__m256i *sum, const void *record, const int bytes, const int slot,
                      const int slots)
{
    const int lines = (bytes + CACHE_LINE - 1) / CACHE_LINE;
    for (int i = slot * lines / slots; i < (slot + 1) * lines / slots; i++) {
        const char *line = (const char *)record + AHEAD + i * CACHE_LINE;
        __asm__("prefetcht0 %1" : "+x"(*sum) : "m"(*line));
    }
}

INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
    KEEP_ORDER(sum);
    return sum;
}

INLINE __m256i widen_sums(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

/* ---- one block of small types ------------------------------------------------------------------ */

/* Block b of x against the octets at w. */
INLINE void add_q4_0(block_row x, int64_t b, const octet_q4_0 *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    const int8_t *q = x.q + b * BLOCK;
    __m256i words[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) words[j] = _mm256_setzero_si256();
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i first = x_step(q + 4 * s), second = x_step(q + 16 + 4 * s);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i both = load_step(w[j]->q[s]);
            words[j] = add_products(words[j], low_halves(both), first);
            words[j] = add_products(words[j], high_halves(both), second);
            ask_ahead(&words[j], w[j], sizeof *w[j], s, 4);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        sums[j] = add_block(sums[j], widen_sums(words[j]), octet_floats(w[j]->d), 8, x.scale + b,
                            x.sum + b);
}

/* Σ q·code of a block with codes of 5 bits: 16 bits hold half of it. Each half is multiplied by
 * `factors` on its way to 32. */
INLINE __m256i dot_codes_5(const int8_t *q, const codes_5 codes, __m256i factors)
{
    __m256i code[STEPS], words[2];
    FORGET(q);
    octet_codes_5(codes, code);
    UNROLL
    for (int half = 0; half < 2; half++) {
        words[half] = _mm256_maddubs_epi16(code[4 * half], x_step(q + 16 * half));
        UNROLL
        for (int s = 4 * half + 1; s < 4 * half + 4; s++)
            words[half] = add_products(words[half], code[s], x_step(q + 4 * s));
    }
    return _mm256_add_epi32(_mm256_madd_epi16(words[0], factors),
                            _mm256_madd_epi16(words[1], factors));
}

INLINE void add_q5_0(block_row x, int64_t b, const octet_q5_0 *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256i dot = dot_codes_5(x.q + b * BLOCK, w[j]->q, _mm256_set1_epi16(1));
        ask_ahead(&dot, w[j], sizeof *w[j], 0, 1);
        sums[j] = add_block(sums[j], dot, octet_floats(w[j]->d), 16, x.scale + b, x.sum + b);
    }
}

INLINE void add_q5_1(block_row x, int64_t b, const octet_q5_1 *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256i dot = dot_codes_5(x.q + b * BLOCK, w[j]->q, _mm256_set1_epi16(1));
        ask_ahead(&dot, w[j], sizeof *w[j], 0, 1);
        sums[j] = add_block(sums[j], dot, octet_floats(w[j]->d), 0, x.scale + b, x.sum + b);
        sums[j] = add_minimum(sums[j], octet_floats(w[j]->m), x.sum + b);
    }
}

/* ---- one block of large types ------------------------------------------------------------------ */

/* What the minima of all parts come to. */
INLINE __m256 minima_of(const octet_scales *of, const float *x_sum)
{
    __m256 sum = _mm256_setzero_ps();
    UNROLL
    for (int part = 0; part < 8; part++)
        sum = add_minimum(sum, part_minima(of, part), x_sum + part);
    return sum;
}

/* Parts 2·pair and 2·pair + 1 of a Q4_K block. */
INLINE void add_q4_k_pair(block_row x, int64_t at, const octet_q4_k *const w[STREAMS], const int n,
                          const int pair, const octet_scales of[STREAMS], __m256 parts[STREAMS])
{
    const int8_t *q = x.q + at * BLOCK;
    __m256i low[STREAMS], high[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) low[j] = high[j] = _mm256_setzero_si256();
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i first = x_step(q + 4 * s), second = x_step(q + BLOCK + 4 * s);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i both = load_step(w[j]->q[pair][s]);
            low[j] = add_products(low[j], low_halves(both), first);
            high[j] = add_products(high[j], high_halves(both), second);
            ask_ahead(&high[j], w[j], sizeof *w[j], pair * STEPS + s, 4 * STEPS);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256i dot = _mm256_madd_epi16(low[j], part_scales(&of[j], 2 * pair));
        parts[j] = add_part(parts[j], dot, x.scale + at);
        dot = _mm256_madd_epi16(high[j], part_scales(&of[j], 2 * pair + 1));
        parts[j] = add_part(parts[j], dot, x.scale + at + 1);
    }
}

INLINE void add_q4_k(block_row x, int64_t b, const octet_q4_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    octet_scales of[STREAMS];
    __m256 parts[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) {
        of[j] = octet_scales_of(w[j]->scales);
        parts[j] = _mm256_setzero_ps();
    }
    UNROLL
    for (int pair = 0; pair < 4; pair++) add_q4_k_pair(x, b * 8 + 2 * pair, w, n, pair, of, parts);
    UNROLL
    for (int j = 0; j < n; j++)
        sums[j] = add_parts(sums[j], parts[j], octet_floats(w[j]->d),
                            minima_of(&of[j], x.sum + b * 8), octet_floats(w[j]->dmin));
}

INLINE void add_q5_k(block_row x, int64_t b, const octet_q5_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    NO_UNROLL
    for (int j = 0; j < n; j++) {
        octet_scales of = octet_scales_of(w[j]->scales);
        __m256 parts = _mm256_setzero_ps();
        UNROLL
        for (int part = 0; part < 8; part++) {
            int64_t at = b * 8 + part;
            __m256i dot = dot_codes_5(x.q + at * BLOCK, w[j]->q[part], part_scales(&of, part));
            ask_ahead(&dot, w[j], sizeof *w[j], part, 8);
            parts = add_part(parts, dot, x.scale + at);
        }
        sums[j] = add_parts(sums[j], parts, octet_floats(w[j]->d), minima_of(&of, x.sum + b * 8),
                            octet_floats(w[j]->dmin));
    }
}

/* Two steps of one part of a Q6_K block: codes below 64 times x fit into 16 bits twice; the scale of
 * half a part is multiplied with on the way to 32. */
INLINE __m256i q6_k_products(__m256i first, __m256i second, const int8_t *x, const __m256i *scale)
{
    __m256i sum = _mm256_maddubs_epi16(first, x_step(x));
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(second, x_step(x + 4)));
    return _mm256_madd_epi16(sum, _mm256_load_si256(scale));
}

/* Four parts of a Q6_K block. Codes are too high by 32. */
INLINE __m256 add_q6_k_half(block_row x, int64_t at, const octet_q6_k *w, const int half,
                            __m256 parts)
{
    const int8_t *q = x.q + at * BLOCK;
    __m256i dot[4], scale[4][2];
    FORGET(q);
    UNROLL
    for (int i = 0; i < 4; i++) {
        int32_t x_sums;
        memcpy(&x_sums, x.half_sum + 2 * (at + i), sizeof x_sums);
        __m256i words = octet_words(w->scales[4 * half + i]);
        __m256i too_high = _mm256_mullo_epi16(words, _mm256_set1_epi16(-32));
        dot[i] = _mm256_madd_epi16(too_high, _mm256_set1_epi32(x_sums));
        _mm256_store_si256(&scale[i][0], octet_half(words, 0));
        _mm256_store_si256(&scale[i][1], octet_half(words, 1));
    }
    __asm__("" : "+m"(scale)); /* operands from memory: registers are for codes */
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        step_q6_k first = octet_step_q6_k(w, half, s), second = octet_step_q6_k(w, half, s + 1);
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256i products =
                q6_k_products(octet_codes_q6_k(first, i), octet_codes_q6_k(second, i),
                              q + i * BLOCK + 4 * s, &scale[i][s / 4]);
            dot[i] = _mm256_add_epi32(dot[i], products);
            KEEP_ORDER(dot[i]);
            ask_ahead(&dot[i], w, sizeof *w, half * 16 + s * 2 + i, 32);
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) parts = add_part(parts, dot[i], x.scale + at + i);
    return parts;
}

/* One octet after the other, as together they would want more registers than there are, but half by
 * half, for memory. */
INLINE void add_q6_k(block_row x, int64_t b, const octet_q6_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    __m256 parts[STREAMS];
    NO_UNROLL
    for (int j = 0; j < n; j++) parts[j] = add_q6_k_half(x, b * 8, w[j], 0, _mm256_setzero_ps());
    NO_UNROLL
    for (int j = 0; j < n; j++) {
        parts[j] = add_q6_k_half(x, b * 8 + 4, w[j], 1, parts[j]);
        sums[j] = _mm256_fmadd_ps(parts[j], octet_floats(w[j]->d), sums[j]);
    }
}

/* ---- a stretch of Q8_0 --------------------------------------------------------------------------- */

/* One block of it, where x is at q. */
INLINE void add_q8_0_block(const int16_t *q, const uint8_t *const w[STREAMS], const int n,
                           const __m256i factor[STREAMS], __m256i dot[STREAMS])
{
    UNROLL
    for (int s = 0; s < STEPS; s++, q += 4) {
        __m256i even = x_step(q), odd = x_step(q + 2);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i codes = load_step(w[j] + s * STEP);
            __m256i first = _mm256_madd_epi16(fine_even(codes, factor[j]), even);
            __m256i second = _mm256_madd_epi16(fine_odd(codes, factor[j]), odd);
            dot[j] = _mm256_add_epi32(dot[j], _mm256_add_epi32(first, second));
            KEEP_ORDER(dot[j]);
            ask_ahead(&dot[j], w[j], BLOCK_OCTET * sizeof(block_q8_0), s, STEPS);
        }
    }
}

INLINE void add_q8_0(block_row x, int64_t stretch, const octet_q8_0 *const w[STREAMS],
                     const int n_blocks, const int n, __m256 sums[STREAMS])
{
    const int16_t *q = x.fine + stretch * BLOCK_STRETCH;
    __m256i dot[STREAMS], factors[STREAMS][STRETCH_BLOCKS];
    __m256 largest[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) {
        dot[j] = _mm256_setzero_si256();
        largest[j] = octet_factors(w[j], n_blocks, factors[j]);
    }
    NO_UNROLL
    for (int b = 0; b < n_blocks; b++, q += BLOCK) {
        const uint8_t *codes[STREAMS];
        __m256i factor[STREAMS];
        UNROLL
        for (int j = 0; j < n; j++) {
            codes[j] = octet_codes_q8_0(w[j], n_blocks, b);
            factor[j] = factors[j][b];
        }
        add_q8_0_block(q, codes, n, factor, dot);
    }
    UNROLL
    for (int j = 0; j < n; j++)
        sums[j] = add_stretch(sums[j], dot[j], largest[j], x.scale + stretch);
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* The beginnings of all streams, which ask_ahead comes too late for. */
INLINE void ask_first(const void *first, const void *second)
{
    int64_t apart = (const char *)second - (const char *)first;
    if (apart == 0) return;
    for (int64_t i = 0; i < AHEAD; i += CACHE_LINE)
        for (int64_t j = 0; j < STREAMS; j++)
            _mm_prefetch((const char *)first + j * apart + i, _MM_HINT_T0);
}

/* For each type: columns [column, column + width) of n octets, block by block; and one stretch of Q8_0. */
#define STRETCH(type, TYPE)                                                                        \
    INLINE void stretch_##type(block_row x, int64_t column, int64_t width,                         \
                               const char *const octet[STREAMS], const int n,                      \
                               __m256 sums[STREAMS])                                               \
    {                                                                                              \
        const int block = dtype_table[TYPE].block;                                                 \
        for (int64_t b = column / block; b < (column + width) / block; b++) {                      \
            const octet_##type *at[STREAMS];                                                       \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) at[j] = (const octet_##type *)octet[j] + b;                \
            add_##type(x, b, at, n, sums);                                                         \
        }                                                                                          \
    }
STRETCH(q4_0, DSMOE_Q4_0)
STRETCH(q5_0, DSMOE_Q5_0)
STRETCH(q5_1, DSMOE_Q5_1)
STRETCH(q4_k, DSMOE_Q4_K)
STRETCH(q5_k, DSMOE_Q5_K)
STRETCH(q6_k, DSMOE_Q6_K)

INLINE void stretch_q8_0(block_row x, int64_t column, int64_t width,
                         const char *const octet[STREAMS], const int n, __m256 sums[STREAMS])
{
    const octet_q8_0 *at[STREAMS];
    int64_t stretch = column / BLOCK_STRETCH;
    UNROLL
    for (int j = 0; j < n; j++) at[j] = (const octet_q8_0 *)octet[j] + stretch;
    if (width == BLOCK_STRETCH)
        add_q8_0(x, stretch, at, STRETCH_BLOCKS, n, sums);
    else
        add_q8_0(x, stretch, at, (int)(width / BLOCK), n, sums);
}

/* For each type: n octets, `apart` bytes from each other, and their outputs y_apart. Sums run over a
 * stretch, as tiles have it, and then join those before. */
#define ROWS(type, TYPE)                                                                           \
    INLINE void rows_##type(block_row x, const char *w, int64_t apart, const int n, int64_t k,     \
                            float *y, int64_t y_apart)                                             \
    {                                                                                              \
        const char *octet[STREAMS];                                                                \
        __m256 sums[STREAMS];                                                                      \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++) {                                                              \
            octet[j] = w + j * apart;                                                              \
            sums[j] = _mm256_setzero_ps();                                                         \
        }                                                                                          \
        for (int64_t column = 0; column < k; column += BLOCK_STRETCH) {                            \
            int64_t width = k - column < BLOCK_STRETCH ? k - column : BLOCK_STRETCH;               \
            __m256 more[STREAMS];                                                                  \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) more[j] = _mm256_setzero_ps();                             \
            stretch_##type(x, column, width, octet, n, more);                                      \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) sums[j] = _mm256_add_ps(sums[j], more[j]);                 \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++) _mm256_storeu_ps(y + j * y_apart, sums[j]);                    \
    }                                                                                              \
    void block_row_##type##_avx2(block_row x, const void *octets, int64_t n, int64_t k, float *y)  \
    {                                                                                              \
        int64_t bytes = BLOCK_OCTET * dtype_bytes(TYPE, k), length = n / STREAMS, i = 0;           \
        const char *w = octets;                                                                    \
        ask_first(w, w + length * bytes);                                                          \
        for (; i < length; i++)                                                                    \
            rows_##type(x, w + i * bytes, length * bytes, STREAMS, k, y + i * 8, length * 8);      \
        for (i = length * STREAMS; i < n; i++)                                                     \
            rows_##type(x, w + i * bytes, 0, 1, k, y + i * 8, 0);                                  \
    }
ROWS(q4_0, DSMOE_Q4_0)
ROWS(q5_0, DSMOE_Q5_0)
ROWS(q5_1, DSMOE_Q5_1)
ROWS(q8_0, DSMOE_Q8_0)
ROWS(q4_k, DSMOE_Q4_K)
ROWS(q5_k, DSMOE_Q5_K)
ROWS(q6_k, DSMOE_Q6_K)

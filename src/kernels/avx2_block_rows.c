/* avx2_block_rows.c - one row of x against rows of block types: what decoding a token is made of, and
 * limited by how fast memory brings the weights.
 *
 * An octet's lanes are its rows. Products of codes and x are summed in 16 bits over as many columns as
 * fit (see avx2_block_tiles.c), so that most instructions are those that nothing can do without. Some
 * octets go together: they share the loads of x, and memory is busier with more than one stream. It is
 * not asked ahead: records are read from their first byte to their last, which it notices by itself, and
 * asking only takes places of the queue to the caches. */
#include "kernels/avx2_blocks.h"

enum { STREAMS = 3 };

INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
    KEEP_ORDER(sum);
    return sum;
}

INLINE __m256i widen_sums(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

/* A block more: sum + (dot·scale_x)·scale - min·sum_x, in the very order of the tiles, so that a row has
 * the same bits alone and among others. */
INLINE __m256 add_scaled(__m256 sum, __m256i dot, __m256 scale, const float *x_scale)
{
    __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(x_scale));
    return _mm256_fmadd_ps(scaled, scale, sum);
}

INLINE __m256 take_off(__m256 sum, __m256 min, const float *x_sum)
{
    return _mm256_fnmadd_ps(min, _mm256_broadcast_ss(x_sum), sum);
}

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
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256 d = octet_floats(w[j]->d);
        sums[j] = add_scaled(sums[j], widen_sums(words[j]), d, x.scale + b);
        sums[j] = take_off(sums[j], _mm256_mul_ps(d, _mm256_set1_ps(8.0f)), x.sum + b);
    }
}

INLINE void add_q5_0(block_row x, int64_t b, const octet_q5_0 *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    const int8_t *q = x.q + b * BLOCK;
    __m256i low[STREAMS], high[STREAMS], fifth[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) {
        low[j] = high[j] = _mm256_setzero_si256();
        fifth[j] = load_step(w[j]->high);
    }
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i first = x_step(q + 4 * s), second = x_step(q + 16 + 4 * s);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i both = load_step(w[j]->q[s]);
            __m256i a = _mm256_or_si256(low_halves(both), move_bits(fifth[j], s, 4, 16));
            __m256i c = _mm256_or_si256(high_halves(both), move_bits(fifth[j], s + 4, 4, 16));
            low[j] = add_products(low[j], a, first);
            high[j] = add_products(high[j], c, second);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256 d = octet_floats(w[j]->d);
        __m256i dot = _mm256_add_epi32(widen_sums(low[j]), widen_sums(high[j]));
        sums[j] = add_scaled(sums[j], dot, d, x.scale + b);
        sums[j] = take_off(sums[j], _mm256_mul_ps(d, _mm256_set1_ps(16.0f)), x.sum + b);
    }
}

/* One operand must be unsigned: x takes the sign of the other. */
INLINE void add_q8_0(block_row x, int64_t b, const octet_q8_0 *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    __m256i dot[STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) dot[j] = _mm256_setzero_si256();
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i four = x_step(x.q + b * BLOCK + 4 * s);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i codes = load_step(w[j]->q[s]);
            __m256i pairs =
                _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(four, codes));
            dot[j] = _mm256_add_epi32(dot[j], widen_sums(pairs));
            KEEP_ORDER(dot[j]);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        sums[j] = add_scaled(sums[j], dot[j], octet_floats(w[j]->d), x.scale + b);
}

/* ---- one block of large types ------------------------------------------------------------------ */

/* Scales, minima and d of a part are the octet's; x is at its block `at`. */
INLINE void add_part(__m256 *sum, __m256i dot, octet_scales of, __m256 d, __m256 dmin, block_row x,
                     int64_t at)
{
    *sum = add_scaled(*sum, dot, _mm256_mul_ps(of.scale, d), x.scale + at);
    *sum = take_off(*sum, _mm256_mul_ps(of.min, dmin), x.sum + at);
}

INLINE void add_q4_k(block_row x, int64_t b, const octet_q4_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    UNROLL
    for (int pair = 0; pair < 4; pair++) {
        int64_t at = b * 8 + 2 * pair;
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
            }
        }
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256 d = octet_floats(w[j]->d), dmin = octet_floats(w[j]->dmin);
            add_part(&sums[j], widen_sums(low[j]), octet_scales_of(w[j]->scales, 2 * pair), d, dmin,
                     x, at);
            add_part(&sums[j], widen_sums(high[j]), octet_scales_of(w[j]->scales, 2 * pair + 1), d,
                     dmin, x, at + 1);
        }
    }
}

/* Part `part` of a Q5_K block: 16 bits hold half of it. */
INLINE void add_q5_k_part(block_row x, int64_t at, const octet_q5_k *const w[STREAMS], const int n,
                          const int part, __m256 sums[STREAMS])
{
    const int8_t *q = x.q + at * BLOCK;
    __m256i words[2][STREAMS];
    UNROLL
    for (int j = 0; j < n; j++) words[0][j] = words[1][j] = _mm256_setzero_si256();
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        __m256i four = x_step(q + 4 * s);
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256i both = load_step(w[j]->q[part / 2][s]);
            __m256i fifth = move_bits(load_step(w[j]->high[s]), part, 4, 16);
            __m256i codes = part % 2 ? high_halves(both) : low_halves(both);
            words[s / 4][j] = add_products(words[s / 4][j], _mm256_or_si256(codes, fifth), four);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        __m256i dot = _mm256_add_epi32(widen_sums(words[0][j]), widen_sums(words[1][j]));
        add_part(&sums[j], dot, octet_scales_of(w[j]->scales, part), octet_floats(w[j]->d),
                 octet_floats(w[j]->dmin), x, at);
    }
}

INLINE void add_q5_k(block_row x, int64_t b, const octet_q5_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    UNROLL
    for (int part = 0; part < 8; part++) add_q5_k_part(x, b * 8 + part, w, n, part, sums);
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
INLINE void add_q6_k_half(block_row x, int64_t at, const octet_q6_k *w, const int half, __m256 *sum)
{
    const int8_t *q = x.q + at * BLOCK;
    __m256i dot[4], scale[4][2];
    UNROLL
    for (int i = 0; i < 4; i++) {
        int32_t x_sums;
        memcpy(&x_sums, x.half_sum + 2 * (at + i), sizeof x_sums);
        __m256i words = octet_words(w->scales[4 * half + i]);
        __m256i high = _mm256_madd_epi16(words, _mm256_set1_epi32(x_sums));
        dot[i] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(high, 5));
        _mm256_store_si256(&scale[i][0], octet_half(words, 0));
        _mm256_store_si256(&scale[i][1], octet_half(words, 1));
    }
    __asm__("" : "+m"(scale)); /* operands from memory: registers are for codes */
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        __m256i first[4], second[4];
        octet_codes_q6_k(w, half, s, first);
        octet_codes_q6_k(w, half, s + 1, second);
        UNROLL
        for (int i = 0; i < 4; i++) {
            __m256i products =
                q6_k_products(first[i], second[i], q + i * BLOCK + 4 * s, &scale[i][s / 4]);
            dot[i] = _mm256_add_epi32(dot[i], products);
            KEEP_ORDER(dot[i]);
        }
    }
    __m256 d = octet_floats(w->d);
    UNROLL
    for (int i = 0; i < 4; i++) {
        *sum = add_scaled(*sum, dot[i], d, x.scale + at + i);
    }
}

/* One octet after the other: together they would want more registers than there are. */
INLINE void add_q6_k(block_row x, int64_t b, const octet_q6_k *const w[STREAMS], const int n,
                     __m256 sums[STREAMS])
{
    NO_UNROLL
    for (int j = 0; j < n; j++) {
        add_q6_k_half(x, b * 8, w[j], 0, &sums[j]);
        add_q6_k_half(x, b * 8 + 4, w[j], 1, &sums[j]);
    }
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* For each type: n octets, `apart` records from each other, and their outputs as far. Sums run over a
 * stretch, as tiles have it, and then join those before. */
#define ROWS(type, TYPE)                                                                           \
    INLINE void rows_##type(block_row x, const octet_##type *w, int64_t apart, const int n,        \
                            int64_t k, float *y, int64_t y_apart)                                  \
    {                                                                                              \
        const int64_t n_records = k / dtype_table[TYPE].block;                                     \
        const int64_t stretch = BLOCK_STRETCH / dtype_table[TYPE].block;                           \
        __m256 sums[STREAMS];                                                                      \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++) sums[j] = _mm256_setzero_ps();                                 \
        for (int64_t first = 0; first < n_records; first += stretch) {                             \
            int64_t end = first + stretch < n_records ? first + stretch : n_records;               \
            __m256 more[STREAMS];                                                                  \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) more[j] = _mm256_setzero_ps();                             \
            for (int64_t b = first; b < end; b++) {                                                \
                const octet_##type *at[STREAMS];                                                   \
                UNROLL                                                                             \
                for (int j = 0; j < n; j++) at[j] = w + b + j * apart;                             \
                add_##type(x, b, at, n, more);                                                     \
            }                                                                                      \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) sums[j] = _mm256_add_ps(sums[j], more[j]);                 \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++) _mm256_storeu_ps(y + j * y_apart, sums[j]);                    \
    }                                                                                              \
    void block_row_##type##_avx2(block_row x, const void *octets, int64_t n, int64_t k, float *y)  \
    {                                                                                              \
        int64_t records = k / dtype_table[TYPE].block, length = n / STREAMS, i = 0;                \
        const octet_##type *w = octets;                                                            \
        for (; i < length; i++)                                                                    \
            rows_##type(x, w + i * records, length * records, STREAMS, k, y + i * 8, length * 8);  \
        for (i = length * STREAMS; i < n; i++)                                                     \
            rows_##type(x, w + i * records, 0, 1, k, y + i * 8, 0);                                \
    }
ROWS(q4_0, DSMOE_Q4_0)
ROWS(q5_0, DSMOE_Q5_0)
ROWS(q8_0, DSMOE_Q8_0)
ROWS(q4_k, DSMOE_Q4_K)
ROWS(q5_k, DSMOE_Q5_K)
ROWS(q6_k, DSMOE_Q6_K)

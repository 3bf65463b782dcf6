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

/* Sums of an octet: what codes say, and what they are too high by. */
typedef struct row_sums {
    __m256 codes, high;
} row_sums;

/* Four columns of x for all lanes. */
INLINE __m256i x_step(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

INLINE __m256i add_products(__m256i sum, __m256i codes, __m256i x)
{
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
    KEEP_ORDER(sum);
    return sum;
}

INLINE __m256i widen_sums(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

/* sum + scale·dot, scale being that of the codes times that of x */
INLINE __m256 add_scaled(__m256 sum, __m256i dot, __m256 scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

/* ---- one block of small types ------------------------------------------------------------------ */

/* Block b of x against the octets at w. */
INLINE void add_q4_0(block_row x, int64_t b, const octet_q4_0 *const w[STREAMS], const int n,
                     row_sums sums[STREAMS])
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
        __m256 scale = _mm256_mul_ps(d, _mm256_broadcast_ss(x.scale + b));
        sums[j].codes = add_scaled(sums[j].codes, widen_sums(words[j]), scale);
        sums[j].high = _mm256_fmadd_ps(d, _mm256_broadcast_ss(x.sum + b), sums[j].high);
    }
}

INLINE void add_q5_0(block_row x, int64_t b, const octet_q5_0 *const w[STREAMS], const int n,
                     row_sums sums[STREAMS])
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
        __m256 scale = _mm256_mul_ps(d, _mm256_broadcast_ss(x.scale + b));
        __m256i dot = _mm256_add_epi32(widen_sums(low[j]), widen_sums(high[j]));
        sums[j].codes = add_scaled(sums[j].codes, dot, scale);
        sums[j].high = _mm256_fmadd_ps(d, _mm256_broadcast_ss(x.sum + b), sums[j].high);
    }
}

/* One operand must be unsigned: x takes the sign of the other. */
INLINE void add_q8_0(block_row x, int64_t b, const octet_q8_0 *const w[STREAMS], const int n,
                     row_sums sums[STREAMS])
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
    for (int j = 0; j < n; j++) {
        __m256 scale = _mm256_mul_ps(octet_floats(w[j]->d), _mm256_broadcast_ss(x.scale + b));
        sums[j].codes = add_scaled(sums[j].codes, dot[j], scale);
    }
}

/* ---- one block of large types ------------------------------------------------------------------ */

/* Scales, minima and d of part b are the octet's; x is at its block `at`. */
INLINE void add_part(row_sums *sums, __m256i dot, octet_scales of, __m256 d, __m256 dmin,
                     block_row x, int64_t at)
{
    __m256 scale = _mm256_mul_ps(_mm256_mul_ps(of.scale, d), _mm256_broadcast_ss(x.scale + at));
    sums->codes = add_scaled(sums->codes, dot, scale);
    sums->high =
        _mm256_fmadd_ps(_mm256_mul_ps(of.min, dmin), _mm256_broadcast_ss(x.sum + at), sums->high);
}

INLINE void add_q4_k(block_row x, int64_t b, const octet_q4_k *const w[STREAMS], const int n,
                     row_sums sums[STREAMS])
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
                          const int part, row_sums sums[STREAMS])
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
                     row_sums sums[STREAMS])
{
    UNROLL
    for (int part = 0; part < 8; part++) add_q5_k_part(x, b * 8 + part, w, n, part, sums);
}

/* Four parts of a Q6_K block. Two steps of codes below 64 fit into 16 bits; the scale of half a part is
 * multiplied with on the way to 32. Codes are too high by 32. */
INLINE void add_q6_k_half(block_row x, int64_t at, const octet_q6_k *w, const int half,
                          row_sums *sums)
{
    const int8_t *q = x.q + at * BLOCK;
    __m256i dot[4], words[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        int32_t x_sums;
        memcpy(&x_sums, x.half_sum + 2 * (at + i), sizeof x_sums);
        words[i] = octet_words(w->scales[4 * half + i]);
        __m256i high = _mm256_madd_epi16(words[i], _mm256_set1_epi32(x_sums));
        dot[i] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(high, 5));
    }
    UNROLL
    for (int s = 0; s < STEPS; s += 2) {
        __m256i first[4], second[4];
        octet_codes_q6_k(w, half, s, first);
        octet_codes_q6_k(w, half, s + 1, second);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int8_t *x_at = q + i * BLOCK + 4 * s;
            __m256i sum = _mm256_maddubs_epi16(first[i], x_step(x_at));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(second[i], x_step(x_at + 4)));
            sum = _mm256_madd_epi16(sum, octet_half(words[i], s / 4));
            dot[i] = _mm256_add_epi32(dot[i], sum);
            KEEP_ORDER(dot[i]);
        }
    }
    __m256 d = octet_floats(w->d);
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 scale = _mm256_mul_ps(d, _mm256_broadcast_ss(x.scale + at + i));
        sums->codes = add_scaled(sums->codes, dot[i], scale);
    }
}

INLINE void add_q6_k(block_row x, int64_t b, const octet_q6_k *const w[STREAMS], const int n,
                     row_sums sums[STREAMS])
{
    UNROLL
    for (int half = 0; half < 2; half++) {
        UNROLL
        for (int j = 0; j < n; j++) add_q6_k_half(x, b * 8 + 4 * half, w[j], half, &sums[j]);
    }
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* For each type: n octets, `apart` records from each other, and their outputs as far. `zero` is what a code stands for 0 with, where that is the same for all. */
#define ROWS(type, TYPE, zero)                                                                     \
    INLINE void rows_##type(block_row x, const octet_##type *w, int64_t apart, const int n,        \
                            int64_t k, float *y, int64_t y_apart)                                  \
    {                                                                                              \
        row_sums sums[STREAMS];                                                                    \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++)                                                                \
            sums[j] = (row_sums){_mm256_setzero_ps(), _mm256_setzero_ps()};                        \
        for (int64_t b = 0; b < k / dtype_table[TYPE].block; b++) {                                \
            const octet_##type *at[STREAMS];                                                       \
            UNROLL                                                                                 \
            for (int j = 0; j < n; j++) at[j] = w + b + j * apart;                                 \
            add_##type(x, b, at, n, sums);                                                         \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++)                                                                \
            _mm256_storeu_ps(y + j * y_apart,                                                      \
                             _mm256_fnmadd_ps(_mm256_set1_ps(zero), sums[j].high, sums[j].codes)); \
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

ROWS(q4_0, DSMOE_Q4_0, 8.0f)
ROWS(q5_0, DSMOE_Q5_0, 16.0f)
ROWS(q8_0, DSMOE_Q8_0, 0.0f)
ROWS(q4_k, DSMOE_Q4_K, 1.0f)
ROWS(q5_k, DSMOE_Q5_K, 1.0f)
ROWS(q6_k, DSMOE_Q6_K, 0.0f)

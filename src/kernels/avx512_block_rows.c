/* avx512_block_rows.c - products of rows of x with weights of block types, straight from octets.
 *
 * VNNI adds four products of bytes to a lane of 32 bits in one instruction, so no sum has to be widened,
 * however many bits a code has. Codes are split once for all rows of x. Q4_K codes in the upper halves of
 * bytes stay there, sixteen times too large, and their scale is that much smaller: splitting then needs only
 * a mask. Some types subtract a constant from every code. That comes to one number for each block of x, with
 * which its sum begins.
 *
 * All sums of integers times their scales are whole numbers below 2^24, which floats hold exactly.
 *
 * The limit for one row is how fast memory delivers the weights, and nearly so for two or three. So cache
 * lines are read in their order; the processor then prefetches them by itself: see ask_in_order. */
#include "kernels/avx512_block_sums.h"

/* ---- small types: a pair, or a single last block -------------------------------------------------- */

INLINE __m512 small_floats(const char *at, const bool single)
{
    if (!single) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_zextps256_ps512(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)));
}

INLINE void dot_small(const dsmoe_dtype type, const int m, const block_x *x, int64_t b,
                      const uint8_t *codes, const bool single, __m512i dot[ROWS])
{
    const int bytes = single ? STEP / 2 : STEP;
    __m512i code[STEPS];
    if (type != DSMOE_Q4_0) split_5(codes, single, code);
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        if (type == DSMOE_Q4_0) {
            __m512i both = load_step(codes + s % 4 * bytes, single);
            code[s] = s < 4 ? low_halves(both) : high_halves(both);
        }
        add_step(m, x, b, s, single, code[s], dot);
    }
}

/* Adds d·scale_x·dot, and m·sum_x if the type has minima. */
INLINE void add_small(const dsmoe_dtype type, const int m, const block_x *x, int64_t b,
                      const char *scales, const uint8_t *codes, const bool single,
                      const offsets *offset, const int at, __m512 sums[ROWS])
{
    const bool minima = type == DSMOE_Q5_1;
    __m512i dot[ROWS];
    UNROLL
    for (int i = 0; i < m; i++)
        dot[i] = minima ? _mm512_setzero_si512() : x_offset(offset, i, at, single);
    dot_small(type, m, x, b, codes, single, dot);
    __m512 d = small_floats(scales, single), min = d;
    if (minima) min = small_floats(scales + (single ? 16 : 32), single);
    UNROLL
    for (int i = 0; i < m; i++) {
        __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[i]), x_scale(x, i, b, single));
        sums[i] = _mm512_fmadd_ps(value, d, sums[i]);
        if (minima) sums[i] = _mm512_fmadd_ps(x_sum(x, i, b, single), min, sums[i]);
    }
}

/* Adds a single last block: each row's sum goes to the first of its two lanes. */
INLINE void add_single(const dsmoe_dtype type, const int m, const block_x *x, int64_t b,
                       const char *scales, const uint8_t *codes, const offsets *offset,
                       const int at, __m512 sums[ROWS])
{
    __m512 single[ROWS];
    no_sums(m, single);
    add_small(type, m, x, b, scales, codes, true, offset, at, single);
    UNROLL
    for (int i = 0; i < m; i++)
        sums[i] = _mm512_add_ps(sums[i], _mm512_maskz_expand_ps(0x5555, single[i]));
}

INLINE void add_stretch_small(const dsmoe_dtype type, const int m, const block_x *x, int64_t column,
                              int64_t width, const char *octet, __m512 sums[ROWS])
{
    const int scale_bytes = type == DSMOE_Q5_1 ? 32 : 16;
    const int code_bytes = BLOCK_OCTET * dtype_table[type].bytes - scale_bytes;
    const char *scales = octet + BLOCK_OCTET * dtype_bytes(type, column);
    int64_t b = column / BLOCK, n = width / BLOCK, at = 0;
    const uint8_t *codes = (const uint8_t *)scales + n * scale_bytes;
    offsets offset;
    ask_in_order(scales, codes);
    if (type != DSMOE_Q5_1) block_offsets(m, x, b, n, type == DSMOE_Q4_0 ? 8 : 16, &offset);
    NO_UNROLL
    for (; at + 2 <= n; at += 2)
        add_small(type, m, x, b + at, scales + at * scale_bytes, codes + at * code_bytes, false,
                  &offset, (int)at, sums);
    if (at < n)
        add_single(type, m, x, b + at, scales + at * scale_bytes, codes + at * code_bytes, &offset,
                   (int)at, sums);
}

/* ---- Q8_0 ---------------------------------------------------------------------------------------- */

/* The factors by which the codes of each block are multiplied, four times for each row. Returns the
 * largest scales. */
INLINE __m256 factors_of(const uint16_t (*d)[8], const int n, __m512i factor[2 * PAIRS])
{
    __m256i max = _mm256_setzero_si256(); /* as bits, which have the order of the floats */
    UNROLL
    for (int b = 0; b < 2 * PAIRS; b++) {
        if (b >= n) break;
        __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)d[b]));
        __m256i bits = _mm256_castps_si256(scale);
        max = _mm256_max_epi32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    __m256 inverse = _mm256_div_ps(_mm256_set1_ps(FINE_FACTOR), _mm256_castsi256_ps(max));
    UNROLL
    for (int b = 0; b < 2 * PAIRS; b++) {
        if (b >= n) break;
        __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)d[b]));
        /* A NaN becomes 1 << 31; its lower half, the factor, is 0. */
        __m256i part = _mm256_cvtps_epi32(_mm256_mul_ps(scale, inverse));
        __m512i word = _mm512_cvtepu32_epi64(part);
        const __m512i four = _mm512_set4_epi32(0x09080908, 0x09080908, 0x01000100, 0x01000100);
        factor[b] = _mm512_shuffle_epi8(word, four);
    }
    return _mm256_castsi256_ps(max);
}

/* Each number twice. */
INLINE __m512 twice(__m256 v)
{
    const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(v));
}

INLINE __m512 scale_q8_0(__m256 largest)
{
    return twice(_mm256_mul_ps(largest, _mm256_set1_ps(1.0f / FINE_ONE)));
}

/* The end of a stretch, when all blocks are added up: multiplies by scale_x and the scale. */
INLINE void add_sums_q8_0(const int m, const block_x *x, int64_t column, const __m512i dot[ROWS],
                          __m512 scale, __m512 sums[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m512 by = x_scale(x, i, column / BLOCK_STRETCH, true);
        sums[i] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[i]), by), scale, sums[i]);
    }
}

INLINE const uint16_t (*scales_q8_0(const char *octet, int64_t column))[8]
{
    return (const uint16_t(*)[8])(octet + BLOCK_OCTET * dtype_bytes(DSMOE_Q8_0, column));
}

/* Eight codes of each row times their factor, as words: first those in even bytes, then those in odd
 * bytes. */
INLINE void words_q8_0(const uint8_t *codes, __m512i factor, __m512i words[2])
{
    __m512i eight = load_step(codes, false), upper = _mm512_set1_epi16((short)0xff00);
    words[0] = _mm512_mulhrs_epi16(_mm512_slli_epi16(eight, 8), factor);
    words[1] = _mm512_mulhrs_epi16(_mm512_and_si512(eight, upper), factor);
}

/* A row has several sums that take turns, since an addition has to wait five cycles for the one before it. */
enum { CHAINS = 2 };
INLINE int chains(const int m) { return m == 1 ? 2 * CHAINS : CHAINS; }

INLINE void join_chains(const int m, __m512i *dot)
{
    UNROLL
    for (int i = m; i < m * chains(m); i++) dot[i % m] = _mm512_add_epi32(dot[i % m], dot[i]);
}

/* Adds step s of block b: two columns of each lane. */
INLINE void add_words_step(const int m, const block_x *x, int64_t b, const int s, __m512i words,
                           __m512i dot[CHAINS * ROWS])
{
    __m512i *to = dot + s % chains(m) * m;
    UNROLL
    for (int i = 0; i < m; i++)
        to[i] = _mm512_dpwssd_epi32(to[i], words, x_step(x, i, 2 * b, s, false));
}

INLINE void add_block_q8_0(const int m, const block_x *x, int64_t b, const uint8_t *codes,
                           __m512i factor, __m512i dot[CHAINS * ROWS])
{
    UNROLL
    for (int t = 0; t < BLOCK / 8; t++) {
        __m512i words[2];
        words_q8_0(codes + t * STEP, factor, words);
        add_words_step(m, x, b, 2 * t, words[0], dot);
        add_words_step(m, x, b, 2 * t + 1, words[1], dot);
    }
}

INLINE void add_blocks_q8_0(const int m, const block_x *x, int64_t column, const int n,
                            const char *octet, __m512 sums[ROWS])
{
    const uint16_t(*d)[8] = scales_q8_0(octet, column);
    const uint8_t *codes = (const uint8_t *)d[n];
    __m512i dot[CHAINS * ROWS], factor[2 * PAIRS];
    __m256 largest = factors_of(d, n, factor);
    no_dots(m * chains(m), dot);
    NO_UNROLL
    for (int b = 0; b < n; b++)
        add_block_q8_0(m, x, column / BLOCK + b, codes + b * (BLOCK / 8) * STEP, factor[b], dot);
    join_chains(m, dot);
    add_sums_q8_0(m, x, column, dot, scale_q8_0(largest), sums);
}

/* ---- large types --------------------------------------------------------------------------------- */

/* The scales and minima of all pairs as floats, d and dmin. */
typedef struct scales_k {
    __m512 scale[PAIRS], min[PAIRS], d, dmin;
} scales_k;

INLINE __m512 six_bits(__m512i v, const int from)
{
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, from), _mm512_set1_epi32(63)));
}

INLINE scales_k scales_of(const stretch_scales *s)
{
    __m512i first = _mm512_loadu_si512(s->first);
    __m512i last = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)s->last));
    __m512i split = _mm512_or_si512(_mm512_srli_epi32(first, 30),
                                    _mm512_slli_epi32(_mm512_srli_epi32(last, 12), 2));
    __m512 both = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)s->d));
    scales_k of = {.min = {six_bits(first, 24), six_bits(last, 0), six_bits(last, 6),
                           _mm512_cvtepi32_ps(split)},
                   .d = _mm512_moveldup_ps(both),
                   .dmin = _mm512_movehdup_ps(both)};
    UNROLL
    for (int p = 0; p < PAIRS; p++) of.scale[p] = six_bits(first, 6 * p);
    return of;
}

/* Adds a pair: scale_x·scale·dot. */
INLINE void add_pair(const int m, const block_x *x, int64_t b, const __m512i dot[ROWS],
                     __m512 scale, __m512 parts[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[i]), scale);
        parts[i] = _mm512_fmadd_ps(value, x_scale(x, i, b, false), parts[i]);
    }
}

/* The end of a stretch of Q4_K or Q5_K, when all pairs are added up: applies d, the minima and dmin. */
INLINE void add_parts(const int m, const block_x *x, int64_t b, const scales_k *of,
                      const __m512 parts[ROWS], __m512 sums[ROWS])
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m512 minima = _mm512_mul_ps(of->min[0], x_sum(x, i, b, false));
        UNROLL
        for (int p = 1; p < PAIRS; p++)
            minima = _mm512_fmadd_ps(of->min[p], x_sum(x, i, b + 2 * p, false), minima);
        sums[i] = _mm512_fmadd_ps(parts[i], of->d, sums[i]);
        sums[i] = _mm512_fnmadd_ps(minima, of->dmin, sums[i]);
    }
}

/* Adds two pairs of Q4_K, whose codes are in the lower and the upper halves of bytes. */
INLINE void add_pairs_q4_k(const int m, const block_x *x, int64_t b, const uint8_t (*q)[STEP],
                           __m512 low_scale, __m512 high_scale, __m512 parts[ROWS])
{
    const __m512i low_mask = _mm512_set1_epi8(15), high_mask = _mm512_set1_epi8((char)0xf0);
    __m512i low[ROWS], high[ROWS];
    no_dots(m, low);
    no_dots(m, high);
    UNROLL
    for (int s = 0; s < STEPS; s++) {
        add_step(m, x, b, s, false, _mm512_and_si512(load_step(q[s], false), low_mask), low);
        add_step(m, x, b + 2, s, false, _mm512_and_si512(load_step(q[s], false), high_mask), high);
    }
    add_pair(m, x, b, low, low_scale, parts);
    add_pair(m, x, b + 2, high, _mm512_mul_ps(high_scale, _mm512_set1_ps(1.0f / 16)), parts);
}

INLINE void add_stretch_q4_k(const int m, const block_x *x, int64_t column, const stretch_q4_k *w,
                             __m512 sums[ROWS])
{
    const int64_t b = column / BLOCK;
    scales_k of = scales_of(&w->scales);
    __m512 parts[ROWS];
    no_sums(m, parts);
    NO_UNROLL
    for (int i = 0; i < 2; i++)
        add_pairs_q4_k(m, x, b + 4 * i, w->q[i], of.scale[2 * i], of.scale[2 * i + 1], parts);
    add_parts(m, x, b, &of, parts, sums);
}

INLINE void add_stretch_q5_k(const int m, const block_x *x, int64_t column, const stretch_q5_k *w,
                             __m512 sums[ROWS])
{
    const int64_t b = column / BLOCK;
    scales_k of = scales_of(&w->scales);
    __m512 parts[ROWS];
    no_sums(m, parts);
    NO_UNROLL
    for (int p = 0; p < PAIRS; p++) {
        __m512i dot[ROWS], code[STEPS];
        no_dots(m, dot);
        split_5(w->q[p][0], false, code);
        UNROLL
        for (int s = 0; s < STEPS; s++) add_step(m, x, b + 2 * p, s, false, code[s], dot);
        add_pair(m, x, b + 2 * p, dot, of.scale[p], parts);
    }
    add_parts(m, x, b, &of, parts, sums);
}

INLINE __m512 scales_of_half(const int8_t scale[8][2])
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)scale)));
}

/* One half of the blocks of n pairs of Q6_K, beginning with pair `first`. Half 0 writes scale·dot to `value`,
 * half 1 adds it. */
INLINE void add_half_q6_k(const int m, const block_x *x, int64_t b, const stretch_q6_k *w,
                          const int first, const int n, const int half, const scales_q6_k *scales,
                          const offsets *offset, __m512 value[PAIRS][ROWS])
{
    __m512i dot[PAIRS][ROWS];
    UNROLL
    for (int i = 0; i < n * m; i++)
        dot[i / m][i % m] = x_offset(offset, i % m, 4 * (first + i / m) + 2 * half, false);
    UNROLL
    for (int s = 4 * half; s < 4 * half + 4; s++) {
        UNROLL
        for (int p = 0; p < n; p++)
            add_step(m, x, b + 2 * (first + p), s, false, split_6(w, first + p, s), dot[p]);
    }
    UNROLL
    for (int i = 0; i < n * m; i++) {
        __m512 number = _mm512_cvtepi32_ps(dot[i / m][i % m]), *to = &value[i / m][i % m];
        __m512 scale = scales_of_half(scales->scale[first + i / m][half]);
        *to = half ? _mm512_fmadd_ps(number, scale, *to) : _mm512_mul_ps(number, scale);
    }
}

/* The codes of all pairs come from the same lines, so few rows take all pairs at once. For many rows there
 * are not enough registers, and they take one pair after the other. */
INLINE void add_stretch_q6_k(const int m, const block_x *x, int64_t column, const stretch_q6_k *w,
                             const scales_q6_k *scales, __m512 sums[ROWS])
{
    const int64_t b = column / BLOCK;
    const int n = m <= 4 ? PAIRS : 1;
    __m512 parts[ROWS], value[PAIRS][ROWS];
    offsets offset;
    no_sums(m, parts);
    half_offsets(m, x, b, 5, &offset);
    if (n < PAIRS) ask_in_order(w, w + 1);
    UNROLL
    for (int first = 0; first < PAIRS; first += n) {
        add_half_q6_k(m, x, b, w, first, n, 0, scales, &offset, value);
        add_half_q6_k(m, x, b, w, first, n, 1, scales, &offset, value);
        UNROLL
        for (int i = 0; i < n * m; i++) {
            __m512 by = x_scale(x, i % m, b + 2 * (first + i / m), false);
            parts[i % m] = _mm512_fmadd_ps(value[i / m][i % m], by, parts[i % m]);
        }
    }
    __m512 d = twice(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales->d)));
    UNROLL
    for (int i = 0; i < m; i++) sums[i] = _mm512_fmadd_ps(parts[i], d, sums[i]);
}

/* ---- all octets ---------------------------------------------------------------------------------- */

/* Adds the products with columns [column, column + width) of an octet of k columns, at most a stretch. They
 * are summed separately first, so that a large number in one stretch does not change how the others are
 * rounded. */
INLINE void add_stretch(const dsmoe_dtype type, const int m, const block_x *x, int64_t column,
                        int64_t width, int64_t k, const char *octet, __m512 sums[ROWS])
{
    int64_t stretch = column / BLOCK_STRETCH;
    __m512 more[ROWS];
    no_sums(m, more);
    if (type == DSMOE_Q4_K)
        add_stretch_q4_k(m, x, column, (const stretch_q4_k *)octet + stretch, more);
    else if (type == DSMOE_Q5_K)
        add_stretch_q5_k(m, x, column, (const stretch_q5_k *)octet + stretch, more);
    else if (type == DSMOE_Q6_K) {
        place_q6_k w = place_of_q6_k(octet, stretch, k / SUPER_BLOCK);
        if (stretch % SIX_GROUP == 0) ask_in_order(w.scales, w.codes);
        add_stretch_q6_k(m, x, column, w.codes, w.scales, more);
    } else if (type == DSMOE_Q8_0)
        add_blocks_q8_0(m, x, column, (int)(width / BLOCK), octet, more);
    else
        add_stretch_small(type, m, x, column, width, octet, more);
    UNROLL
    for (int i = 0; i < m; i++) sums[i] = _mm512_add_ps(sums[i], more[i]);
}

/* There is a function for each type and number of rows. It is never inlined, because the rows of x need all
 * registers for addresses. */
typedef void stretch_fn(const block_x *x, int64_t column, int64_t width, int64_t k,
                        const char *octet, __m512 sums[ROWS]);

#define STRETCH(type, TYPE, m)                                                                     \
    static                                                                                         \
        __attribute__((noinline)) void type##_##m(const block_x *x, int64_t column, int64_t width, \
                                                  int64_t k, const char *octet, __m512 sums[ROWS]) \
    {                                                                                              \
        add_stretch(TYPE, m, x, column, width, k, octet, sums);                                    \
    }

/* Reads octets one after the other, each from its beginning to its end: see ask_in_order. */
static void run_rows(stretch_fn *stretch, dsmoe_dtype type, int m, const block_x *x, const char *w,
                     int64_t n, int64_t k, float *y, int64_t ldy)
{
    const int64_t bytes = BLOCK_OCTET * dtype_bytes(type, k);
    __m512 sums[ROWS];
    for (; n > 0; n--, w += bytes, y += BLOCK_OCTET) {
        for (int i = 0; i < m; i++) sums[i] = _mm512_setzero_ps();
        for (int64_t column = 0; column < k; column += BLOCK_STRETCH) {
            int64_t width = k - column < BLOCK_STRETCH ? k - column : BLOCK_STRETCH;
            stretch(x, column, width, k, w, sums);
        }
        for (int i = 0; i < m; i++) _mm256_storeu_ps(y + i * ldy, fold_lanes(sums[i]));
    }
}

#define RUN_ROWS(type, TYPE)                                                                       \
    STRETCH(type, TYPE, 1)                                                                         \
    STRETCH(type, TYPE, 2)                                                                         \
    STRETCH(type, TYPE, 3)                                                                         \
    STRETCH(type, TYPE, 4)                                                                         \
    STRETCH(type, TYPE, 5)                                                                         \
    STRETCH(type, TYPE, 6)                                                                         \
    STRETCH(type, TYPE, 7)                                                                         \
    STRETCH(type, TYPE, 8)                                                                         \
    static void rows_##type(int m, const block_x *x, const void *w, int64_t n, int64_t k,          \
                            float *y, int64_t ldy)                                                 \
    {                                                                                              \
        static stretch_fn *const of[ROWS] = {type##_1, type##_2, type##_3, type##_4,               \
                                             type##_5, type##_6, type##_7, type##_8};              \
        run_rows(of[m - 1], TYPE, m, x, w, n, k, y, ldy);                                          \
    }
RUN_ROWS(q4_0, DSMOE_Q4_0)
RUN_ROWS(q5_0, DSMOE_Q5_0)
RUN_ROWS(q5_1, DSMOE_Q5_1)
RUN_ROWS(q8_0, DSMOE_Q8_0)
RUN_ROWS(q4_k, DSMOE_Q4_K)
RUN_ROWS(q5_k, DSMOE_Q5_K)
RUN_ROWS(q6_k, DSMOE_Q6_K)

/* ---- many rows of Q8_0 --------------------------------------------------------------------------- */

/* The codes of a stretch as words, made once for all rows because that takes more work than splitting
 * other codes. */
typedef struct words_stretch {
    __m512i words[2 * PAIRS][STEPS];
    __m512 scale;
    int n_blocks;
} words_stretch;

static void split_stretch_q8_0(const char *octet, int64_t column, int n, words_stretch *to)
{
    const uint16_t(*d)[8] = scales_q8_0(octet, column);
    const uint8_t *codes = (const uint8_t *)d[n];
    __m512i factor[2 * PAIRS];
    to->scale = scale_q8_0(factors_of(d, n, factor));
    to->n_blocks = n;
    for (int b = 0; b < n; b++) {
        UNROLL
        for (int t = 0; t < BLOCK / 8; t++, codes += STEP)
            words_q8_0(codes, factor[b], &to->words[b][2 * t]);
    }
}

INLINE void add_words(const int m, const block_x *x, int64_t column, const words_stretch *w,
                      __m512 sums[ROWS])
{
    __m512i dot[CHAINS * ROWS];
    __m512 more[ROWS];
    no_dots(m * chains(m), dot);
    no_sums(m, more);
    NO_UNROLL
    for (int b = 0; b < w->n_blocks; b++) {
        UNROLL
        for (int s = 0; s < STEPS; s++)
            add_words_step(m, x, column / BLOCK + b, s, w->words[b][s], dot);
    }
    join_chains(m, dot);
    add_sums_q8_0(m, x, column, dot, w->scale, more);
    UNROLL
    for (int i = 0; i < m; i++) sums[i] = _mm512_add_ps(sums[i], more[i]);
}

typedef void words_fn(const block_x *x, int64_t column, const words_stretch *w, __m512 sums[ROWS]);

#define WORDS(m)                                                                                   \
    static __attribute__((noinline)) void words_##m(const block_x *x, int64_t column,              \
                                                    const words_stretch *w, __m512 sums[ROWS])     \
    {                                                                                              \
        add_words(m, x, column, w, sums);                                                          \
    }
WORDS(1)
WORDS(2)
WORDS(3)
WORDS(4)
WORDS(5)
WORDS(6)
WORDS(7)
WORDS(8)

/* Products of all groups of rows with one octet. */
static void run_groups_q8_0(int m, int group, const block_x *x, const char *octet, int64_t k,
                            float *y, int64_t ldy)
{
    static words_fn *const of[ROWS] = {words_1, words_2, words_3, words_4,
                                       words_5, words_6, words_7, words_8};
    __m512 sums[BLOCK_ROWS_MAX];
    words_stretch w;
    for (int i = 0; i < m; i++) sums[i] = _mm512_setzero_ps();
    for (int64_t column = 0; column < k; column += BLOCK_STRETCH) {
        int64_t width = k - column < BLOCK_STRETCH ? k - column : BLOCK_STRETCH;
        split_stretch_q8_0(octet, column, (int)(width / BLOCK), &w);
        for (int i = 0; i < m; i += group)
            of[(m - i < group ? m - i : group) - 1](&x[i / group], column, &w, sums + i);
    }
    for (int i = 0; i < m; i++) _mm256_storeu_ps(y + i * ldy, fold_lanes(sums[i]));
}

static void many_rows_q8_0(int m, const block_x *x, const void *w, int64_t n, int64_t k, float *y,
                           int64_t ldy)
{
    if (m <= ROWS) {
        rows_q8_0(m, x, w, n, k, y, ldy);
        return;
    }
    int n_groups = (m + ROWS - 1) / ROWS, group = (m + n_groups - 1) / n_groups;
    block_x groups[BLOCK_ROWS_MAX / ROWS];
    for (int i = 0; i < m; i++) {
        if (i % group == 0) groups[i / group] = *x;
        groups[i / group].row[i % group] = x->row[i];
    }
    for (int64_t i = 0; i < n; i++)
        run_groups_q8_0(m, group, groups,
                        (const char *)w + i * BLOCK_OCTET * dtype_bytes(DSMOE_Q8_0, k), k,
                        y + i * BLOCK_OCTET, ldy);
}

#define KERNELS(type, form)                                                                        \
    {                                                                                              \
        form, ROWS, interleave_##type##_avx512, rows_##type                                        \
    }
const block_kernels blocks_avx512[N_DTYPES] = {
    [DSMOE_Q4_0] = KERNELS(q4_0, BLOCK_BYTES),
    [DSMOE_Q5_0] = KERNELS(q5_0, BLOCK_BYTES),
    [DSMOE_Q5_1] = KERNELS(q5_1, BLOCK_BYTES),
    [DSMOE_Q8_0] = {BLOCK_FINE, BLOCK_ROWS_MAX, interleave_q8_0_avx512, many_rows_q8_0},
    [DSMOE_Q4_K] = KERNELS(q4_k, BLOCK_BYTES),
    [DSMOE_Q5_K] = KERNELS(q5_k, BLOCK_BYTES),
    [DSMOE_Q6_K] = KERNELS(q6_k, BLOCK_BYTES),
};

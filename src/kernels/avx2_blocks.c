/* avx2_blocks.c - converts x to integers, and rows of block types to octets. */
#include "kernels/avx2_blocks.h"

#include <math.h>
#include <stddef.h>

/* ---- x in integers ----------------------------------------------------------------------------- */

/* The largest magnitude of 8·n numbers, as bits. Without the sign, the bits of floats are in the order of the
 * floats, with infinity and NaN above all others. */
INLINE int32_t largest(const float *x, const int64_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    UNROLL
    for (int64_t i = 0; i < n; i++) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
        max = _mm256_max_epi32(max, _mm256_and_si256(bits, magnitude));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* The sums of the first and the last 16 of 32 signed bytes, in the two words of the result. */
INLINE uint32_t half_sums(__m256i q)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
    uint32_t first = (uint32_t)_mm256_cvtsi256_si32(fours);
    uint32_t second = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(fours, 1));
    return (first & 0xffff) | second << 16;
}

/* Eight numbers times a factor, rounded. */
INLINE __m256i rounded(const float *x, float factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor)));
}

/* 32 numbers times a factor, rounded to bytes. */
INLINE __m256i round_to_bytes(const float *x, float factor)
{
    __m256i word[4];
    UNROLL
    for (int i = 0; i < 4; i++) word[i] = rounded(x + 8 * i, factor);
    __m256i low = _mm256_packs_epi32(word[0], word[1]);
    __m256i high = _mm256_packs_epi32(word[2], word[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The factor that brings the largest of 8·n numbers to `top`, and their scale. The factor is 0 if all of them
 * are so small that they count as 0. If one of them is not finite, it is 0 too, and the scale is NaN. */
INLINE float factor_of(const float *x, const int64_t n, const float top, float *scale)
{
    const int32_t infinity = 0x7f800000;
    int32_t bits = largest(x, n);
    float max;
    memcpy(&max, &bits, sizeof max);
    float factor = top / max; /* infinite if max is 0 or nearly 0 */
    bool usable = bits < infinity && factor < INFINITY;
    *scale = usable ? max * (1.0f / top) : bits < infinity ? 0.0f : NAN;
    return usable ? factor : 0.0f;
}

void quantize_avx2(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum)
{
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, q += BLOCK) {
        float factor = factor_of(x, BLOCK / 8, 127.0f, &scale[b]);
        __m256i bytes = factor > 0.0f ? round_to_bytes(x, factor) : _mm256_setzero_si256();
        _mm256_storeu_si256((__m256i *)q, bytes);
        uint32_t sums = half_sums(bytes);
        memcpy(half_sum + 2 * b, &sums, sizeof sums);
    }
}

/* 16 numbers times a factor, rounded to words, each four in the order 0, 2, 1, 3. */
INLINE __m256i round_to_pairs(const float *x, float factor)
{
    const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0,
                                           1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    __m256i words = _mm256_packs_epi32(rounded(x, factor), rounded(x + 8, factor));
    return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(words, 0xd8), pairs);
}

void quantize_fine_avx2(int64_t n, const float *x, int16_t *q, float *scale)
{
    for (; n > 0; n -= BLOCK_STRETCH, x += BLOCK_STRETCH, q += BLOCK_STRETCH, scale++) {
        int64_t width = n < BLOCK_STRETCH ? n : BLOCK_STRETCH;
        float factor = factor_of(x, width / 8, FINE_X, scale);
        for (int64_t k = 0; k < width; k += 16) {
            __m256i words = factor > 0.0f ? round_to_pairs(x + k, factor) : _mm256_setzero_si256();
            _mm256_storeu_si256((__m256i *)(q + k), words);
        }
    }
}

/* ---- eight rows into one octet ------------------------------------------------------------------- */

/* Where the next block of each row begins. */
typedef struct eight {
    const unsigned char *row[BLOCK_OCTET];
} eight;

INLINE __m256i load_halves(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                   _mm_loadu_si128(high), 1);
}

/* Loads 16 bytes of each row, `offset` after the beginning of its block. to[s] gets bytes 4s … 4s + 3 of
 * every row. */
INLINE void transpose_16(const eight *e, int64_t offset, __m256i to[4])
{
    __m256i from[4]; /* each has row i in its lower and row i + 4 in its upper half */
    UNROLL
    for (int i = 0; i < 4; i++) from[i] = load_halves(e->row[i] + offset, e->row[i + 4] + offset);
    __m256i a = _mm256_unpacklo_epi32(from[0], from[1]);
    __m256i b = _mm256_unpackhi_epi32(from[0], from[1]);
    __m256i c = _mm256_unpacklo_epi32(from[2], from[3]);
    __m256i d = _mm256_unpackhi_epi32(from[2], from[3]);
    to[0] = _mm256_unpacklo_epi64(a, c);
    to[1] = _mm256_unpackhi_epi64(a, c);
    to[2] = _mm256_unpacklo_epi64(b, d);
    to[3] = _mm256_unpackhi_epi64(b, d);
}

/* Transposes n bytes of each row and stores them. */
INLINE void interleave_codes(const eight *e, int64_t offset, const int n, uint8_t (*to)[STEP])
{
    for (int at = 0; at < n; at += 16, to += 4) {
        __m256i steps[4];
        transpose_16(e, offset + at, steps);
        UNROLL
        for (int s = 0; s < 4; s++) _mm256_storeu_si256((__m256i *)to[s], steps[s]);
    }
}

static void interleave_halves(const eight *e, int64_t offset, uint16_t d[8])
{
    for (int i = 0; i < 8; i++) memcpy(&d[i], e->row[i] + offset, sizeof d[i]);
}

/* The 16 bytes that Q4_K and Q5_K begin with: d, dmin and the scales. */
INLINE void interleave_scales(const eight *e, uint16_t d[8], uint16_t dmin[8], packed_scales scales)
{
    __m256i steps[4];
    transpose_16(e, 0, steps);
    interleave_halves(e, offsetof(block_q4_k, d), d);
    interleave_halves(e, offsetof(block_q4_k, dmin), dmin);
    UNROLL
    for (int i = 0; i < 3; i++) _mm256_storeu_si256((__m256i *)scales[i], steps[i + 1]);
}

/* Stores codes in the form that octet_codes_5 reads. */
INLINE void store_codes_5(const __m256i code[STEPS], codes_5 to)
{
    const __m256i above[5] = {
        move_bits(code[5], 0, 5, (char)0xe0), move_bits(code[6], 0, 5, (char)0xe0),
        move_bits(code[7], 0, 5, (char)0xe0),
        _mm256_or_si256(move_bits(code[5], 3, 6, (char)0xc0), move_bits(code[7], 3, 5, 0x20)),
        _mm256_or_si256(move_bits(code[6], 3, 6, (char)0xc0), move_bits(code[7], 4, 5, 0x20))};
    UNROLL
    for (int i = 0; i < 5; i++)
        _mm256_storeu_si256((__m256i *)to[i], _mm256_or_si256(code[i], above[i]));
}

INLINE void interleave_q4_0(const eight *e, octet_q4_0 *o)
{
    interleave_halves(e, offsetof(block_q4_0, d), o->d);
    interleave_codes(e, offsetof(block_q4_0, q), 16, o->q);
}

/* The fifth bits of step s, in their place in the codes. Each of a row's four bytes gets a copy of the byte
 * that has their bits, and selects its own. */
INLINE __m256i fifth_bits(__m256i bits, const int s)
{
    const int at = s / 2;
    const __m256i spread = _mm256_setr_epi8(
        at, at, at, at, 4 + at, 4 + at, 4 + at, 4 + at, 8 + at, 8 + at, 8 + at, 8 + at, 12 + at,
        12 + at, 12 + at, 12 + at, at, at, at, at, 4 + at, 4 + at, 4 + at, 4 + at, 8 + at, 8 + at,
        8 + at, 8 + at, 12 + at, 12 + at, 12 + at, 12 + at);
    const __m256i bit = _mm256_set1_epi32(s % 2 ? (int)0x80402010 : 0x08040201);
    __m256i there = _mm256_and_si256(_mm256_shuffle_epi8(bits, spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(there, bit), _mm256_set1_epi8(16));
}

/* The codes of Q5_0 and Q5_1. At `offset` are the fifth bits, and after them the other four. */
INLINE void interleave_small_5(const eight *e, int64_t offset, codes_5 to)
{
    uint32_t high[8];
    for (int i = 0; i < 8; i++) memcpy(&high[i], e->row[i] + offset, sizeof high[i]);
    __m256i bits = _mm256_loadu_si256((const __m256i *)high), both[4], code[STEPS];
    transpose_16(e, offset + (int64_t)sizeof high[0], both);
    UNROLL
    for (int s = 0; s < 4; s++) {
        code[s] = _mm256_or_si256(low_halves(both[s]), fifth_bits(bits, s));
        code[s + 4] = _mm256_or_si256(high_halves(both[s]), fifth_bits(bits, s + 4));
    }
    store_codes_5(code, to);
}

INLINE void interleave_q5_0(const eight *e, octet_q5_0 *o)
{
    interleave_halves(e, offsetof(block_q5_0, d), o->d);
    interleave_small_5(e, offsetof(block_q5_0, high), o->q);
}

INLINE void interleave_q5_1(const eight *e, octet_q5_1 *o)
{
    interleave_halves(e, offsetof(block_q5_1, d), o->d);
    interleave_halves(e, offsetof(block_q5_1, m), o->m);
    interleave_small_5(e, offsetof(block_q5_1, high), o->q);
}

INLINE void interleave_q4_k(const eight *e, octet_q4_k *o)
{
    interleave_scales(e, o->d, o->dmin, o->scales);
    interleave_codes(e, offsetof(block_q4_k, q), 128, o->q[0]);
}

INLINE void interleave_q5_k(const eight *e, octet_q5_k *o)
{
    interleave_scales(e, o->d, o->dmin, o->scales);
    __m256i high[STEPS], both[STEPS];
    transpose_16(e, offsetof(block_q5_k, high), high);
    transpose_16(e, offsetof(block_q5_k, high) + 16, high + 4);
    UNROLL
    for (int part = 0; part < 8; part++) {
        int64_t at = (int64_t)offsetof(block_q5_k, q) + part / 2 * BLOCK;
        __m256i code[STEPS];
        if (part % 2 == 0) {
            transpose_16(e, at, both);
            transpose_16(e, at + 16, both + 4);
        }
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            __m256i four = part % 2 ? high_halves(both[s]) : low_halves(both[s]);
            code[s] = _mm256_or_si256(four, move_bits(high[s], part, 4, 16));
        }
        store_codes_5(code, o->q[part]);
    }
}

/* Four steps of a half of a block, beginning with column `at` of its parts. Joins 4 + 2 bits to codes of 6,
 * and puts the codes of the fourth part above those of the others. */
INLINE void interleave_q6_k_codes(const eight *e, int half, int at, octet_q6_k *o)
{
    __m256i first[4], second[4], high[4];
    int64_t low_at = (int64_t)offsetof(block_q6_k, low) + half * 64 + at;
    transpose_16(e, low_at, first);
    transpose_16(e, low_at + BLOCK, second);
    transpose_16(e, (int64_t)offsetof(block_q6_k, high) + half * BLOCK + at, high);
    UNROLL
    for (int s = 0; s < 4; s++) {
        __m256i last = _mm256_or_si256(high_halves(second[s]), move_bits(high[s], 6, 4, 0x30));
        const __m256i code[3] = {
            _mm256_or_si256(low_halves(first[s]), move_bits(high[s], 0, 4, 0x30)),
            _mm256_or_si256(low_halves(second[s]), move_bits(high[s], 2, 4, 0x30)),
            _mm256_or_si256(high_halves(first[s]), move_bits(high[s], 4, 4, 0x30))};
        UNROLL
        for (int i = 0; i < 3; i++) {
            __m256i above = move_bits(last, 2 * i, 6, (char)0xc0);
            _mm256_storeu_si256((__m256i *)o->q[half][at / 4 + s][i],
                                _mm256_or_si256(code[i], above));
        }
    }
}

INLINE void interleave_q6_k(const eight *e, octet_q6_k *o)
{
    const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m256i scales[4]; /* each has two parts of all rows */
    transpose_16(e, offsetof(block_q6_k, scales), scales);
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m256i by_part = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(scales[i], pairs), 0xd8);
        _mm256_storeu_si256((__m256i *)o->scales[2 * i], by_part);
    }
    interleave_halves(e, offsetof(block_q6_k, d), o->d);
    for (int half = 0; half < 2; half++)
        for (int at = 0; at < BLOCK; at += 16) interleave_q6_k_codes(e, half, at, o);
}

#define INTERLEAVE(type, TYPE)                                                                     \
    void block_interleave_##type##_avx2(const unsigned char *const row[BLOCK_OCTET], int64_t k,    \
                                        void *octet)                                               \
    {                                                                                              \
        eight e;                                                                                   \
        memcpy(&e, row, sizeof e);                                                                 \
        octet_##type *o = octet;                                                                   \
        for (; k > 0; k -= dtype_table[TYPE].block, o++) {                                         \
            interleave_##type(&e, o);                                                              \
            for (int i = 0; i < BLOCK_OCTET; i++) e.row[i] += dtype_table[TYPE].bytes;             \
        }                                                                                          \
    }
INTERLEAVE(q4_0, DSMOE_Q4_0)
INTERLEAVE(q5_0, DSMOE_Q5_0)
INTERLEAVE(q5_1, DSMOE_Q5_1)
INTERLEAVE(q4_k, DSMOE_Q4_K)
INTERLEAVE(q5_k, DSMOE_Q5_K)
INTERLEAVE(q6_k, DSMOE_Q6_K)

void block_interleave_q8_0_avx2(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet)
{
    eight e;
    memcpy(&e, row, sizeof e);
    octet_q8_0 *o = octet;
    for (int64_t left = k / BLOCK; left > 0; left -= STRETCH_BLOCKS, o++) {
        int n_blocks = left < STRETCH_BLOCKS ? (int)left : STRETCH_BLOCKS;
        for (int b = 0; b < n_blocks; b++) {
            uint8_t(*codes)[STEP] = (uint8_t(*)[STEP])octet_codes_q8_0(o, n_blocks, b);
            interleave_halves(&e, offsetof(block_q8_0, d), o->d[b]);
            interleave_codes(&e, offsetof(block_q8_0, q), 32, codes);
            for (int i = 0; i < BLOCK_OCTET; i++) e.row[i] += sizeof(block_q8_0);
        }
    }
}

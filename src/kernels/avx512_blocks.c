/* avx512_blocks.c - converts x to integers, and rows of block types to octets: see avx512_blocks.h. */
#include "kernels/avx512_blocks.h"

#include <math.h>
#include <stddef.h>

/* ---- x in integers ----------------------------------------------------------------------------- */

/* The largest magnitude of a block, as bits. Without the sign, the bits of floats are in the order of the
 * floats, with infinity and NaN above all others. */
INLINE int32_t largest(__m512 first, __m512 second)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i a = _mm512_and_si512(_mm512_castps_si512(first), magnitude);
    __m512i b = _mm512_and_si512(_mm512_castps_si512(second), magnitude);
    return _mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
}

/* 16 numbers times a factor, rounded to bytes. */
INLINE __m128i round_half(__m512 x, __m512 factor)
{
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, factor)));
}

/* The sum of 16 signed bytes. 128 is added to each, so that the instruction can take them as unsigned. */
INLINE int16_t sum_of_half(__m128i q)
{
    __m128i high = _mm_xor_si128(q, _mm_set1_epi8((char)0x80));
    __m128i sums = _mm_sad_epu8(high, _mm_setzero_si128());
    return (int16_t)(_mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128);
}

/* Quantises one block. Numbers that are so small that they count as 0 become 0. If a number is not finite,
 * all become 0 and the scale is NaN. */
INLINE __m256i quantize_block(const float *x, float *scale, int16_t half_sum[2])
{
    const int32_t infinity = 0x7f800000;
    __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
    int32_t bits = largest(first, second);
    float max;
    memcpy(&max, &bits, sizeof max);
    float factor = 127.0f / max; /* infinite if max is 0 or nearly 0 */
    bool usable = bits < infinity && factor < INFINITY;
    *scale = usable ? max * (1.0f / 127.0f) : bits < infinity ? 0.0f : NAN;
    half_sum[0] = half_sum[1] = 0;
    if (!usable) return _mm256_setzero_si256();
    __m128i low = round_half(first, _mm512_set1_ps(factor));
    __m128i high = round_half(second, _mm512_set1_ps(factor));
    half_sum[0] = sum_of_half(low);
    half_sum[1] = sum_of_half(high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

void quantize_avx512(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum)
{
    const __m512i in_turn = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    int64_t b = 0;
    for (; b + 2 <= n / BLOCK; b += 2) {
        __m256i first = quantize_block(x + b * BLOCK, &scale[b], half_sum + 2 * b);
        __m256i second = quantize_block(x + (b + 1) * BLOCK, &scale[b + 1], half_sum + 2 * b + 2);
        __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
        _mm512_storeu_si512(q + b * BLOCK, _mm512_permutexvar_epi32(in_turn, both));
    }
    if (b < n / BLOCK)
        _mm256_storeu_si256((__m256i *)(q + b * BLOCK),
                            quantize_block(x + b * BLOCK, &scale[b], half_sum + 2 * b));
}

/* ---- bytes of eight rows ------------------------------------------------------------------------- */

/* Where the next block of each row begins. */
typedef struct eight {
    const unsigned char *row[BLOCK_OCTET];
} eight;

INLINE eight eight_of(const unsigned char *const row[BLOCK_OCTET])
{
    eight e;
    memcpy(e.row, row, sizeof e.row);
    return e;
}

INLINE void advance(eight *e, int64_t bytes)
{
    UNROLL
    for (int i = 0; i < BLOCK_OCTET; i++) e->row[i] += bytes;
}

INLINE __m128i two_rows(const unsigned char *low, const unsigned char *high)
{
    __m128 first = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)low));
    return _mm_castps_si128(_mm_loadh_pi(first, (const __m64 *)high));
}

/* Loads eight bytes of each row, `offset` after the beginning of its block. Pairs of loads are several times
 * as fast as a gather. */
INLINE __m512i eight_bytes(eight e, int64_t offset)
{
    __m256i half[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        const unsigned char *const *row = e.row + 4 * i;
        __m128i low = two_rows(row[0] + offset, row[1] + offset);
        __m128i high = two_rows(row[2] + offset, row[3] + offset);
        half[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    return _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
}

/* The first two bytes of each row in v. */
INLINE __m128i first_words(__m512i v) { return _mm512_cvtepi64_epi16(v); }

/* Stores d of one block, or of two blocks in turn. eight_bytes reads six bytes more, which every block
 * has. */
INLINE void interleave_halves(eight e, int64_t offset, void *to)
{
    _mm_storeu_si128(to, first_words(eight_bytes(e, offset)));
}
INLINE void interleave_half_pairs(eight e, int64_t first, int64_t second, void *to)
{
    __m256i a = _mm256_cvtepu16_epi32(first_words(eight_bytes(e, first)));
    __m256i b = _mm256_cvtepu16_epi32(first_words(eight_bytes(e, second)));
    _mm256_storeu_si256(to, _mm256_or_si256(a, _mm256_slli_epi32(b, 16)));
}

/* Makes two steps from eight columns of both blocks of a pair. */
INLINE void pair_steps(__m512i first, __m512i second, __m512i step[2])
{
    const __mmask16 of_second = 0xaaaa;
    step[0] = _mm512_mask_blend_epi32(of_second, first, _mm512_slli_epi64(second, 32));
    step[1] = _mm512_mask_blend_epi32(of_second, _mm512_srli_epi64(first, 32), second);
}

/* Makes two steps of half the size from eight columns of a single block, in the lower halves of the
 * registers. */
INLINE void single_steps(__m512i block, __m512i step[2])
{
    step[0] = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(block));
    step[1] = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_srli_epi64(block, 32)));
}

INLINE void store_step(uint8_t *to, const bool single, __m512i step)
{
    if (single)
        _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(step));
    else
        _mm512_storeu_si512(to, step);
}

/* Stores codes in the form that split_5 reads. */
INLINE void store_codes_5(const bool single, const __m512i code[STEPS], uint8_t *to)
{
    const __m512i above[FIVE_STEPS] = {
        move_bits(code[5], 0, 5, (char)0xe0), move_bits(code[6], 0, 5, (char)0xe0),
        move_bits(code[7], 0, 5, (char)0xe0),
        _mm512_or_si512(move_bits(code[5], 3, 6, (char)0xc0), move_bits(code[7], 3, 5, 0x20)),
        _mm512_or_si512(move_bits(code[6], 3, 6, (char)0xc0), move_bits(code[7], 4, 5, 0x20))};
    UNROLL
    for (int i = 0; i < FIVE_STEPS; i++)
        store_step(to + i * (single ? STEP / 2 : STEP), single, _mm512_or_si512(code[i], above[i]));
}

/* ---- small types --------------------------------------------------------------------------------- */

/* The halves of bytes in a block of Q4_0 have the order that the steps need. */
INLINE void codes_q4_0(eight e, int64_t block, const bool single, uint8_t *to)
{
    const int bytes = single ? STEP / 2 : STEP;
    UNROLL
    for (int t = 0; t < 2; t++) {
        int64_t at = block + (int64_t)offsetof(block_q4_0, q) + 8 * t;
        __m512i step[2], first = eight_bytes(e, at);
        if (single)
            single_steps(first, step);
        else
            pair_steps(first, eight_bytes(e, at + (int64_t)sizeof(block_q4_0)), step);
        store_step(to + 2 * t * bytes, single, step[0]);
        store_step(to + (2 * t + 1) * bytes, single, step[1]);
    }
}

/* Columns 8·t … 8·t + 7 of a block with codes of 5 bits, whose fifth bits begin at `at`. The fifth bits of a
 * row are a byte, and those of all rows are a mask for the 64 bytes of codes. */
INLINE __m512i columns_5(eight e, int64_t at, const int t)
{
    __m512i high = _mm512_srli_epi64(eight_bytes(e, at), 8 * t);
    __mmask64 fifth = (__mmask64)_mm_cvtsi128_si64(_mm512_cvtepi64_epi8(high));
    __m512i both = eight_bytes(e, at + 4 + 8 * (t % 2));
    __m512i four = t < 2 ? low_halves(both) : high_halves(both);
    return _mm512_mask_add_epi8(four, fifth, four, _mm512_set1_epi8(16));
}

INLINE void codes_5(eight e, int64_t at, int64_t next, const bool single, uint8_t *to)
{
    __m512i code[STEPS];
    UNROLL
    for (int t = 0; t < 4; t++) {
        if (single)
            single_steps(columns_5(e, at, t), code + 2 * t);
        else
            pair_steps(columns_5(e, at, t), columns_5(e, at + next, t), code + 2 * t);
    }
    store_codes_5(single, code, to);
}

/* Interleaves a single block, or a pair. */
INLINE void interleave_small(const dsmoe_dtype type, eight e, const bool single, uint8_t *scales,
                             uint8_t *codes)
{
    int64_t next = dtype_table[type].bytes;
    for (int i = 0; i < (type == DSMOE_Q5_1 ? 2 : 1); i++) { /* d, m */
        if (single)
            interleave_halves(e, 2 * i, scales + 16 * i);
        else
            interleave_half_pairs(e, 2 * i, next + 2 * i, scales + 32 * i);
    }
    if (type == DSMOE_Q4_0)
        codes_q4_0(e, 0, single, codes);
    else if (type == DSMOE_Q5_0)
        codes_5(e, offsetof(block_q5_0, high), next, single, codes);
    else
        codes_5(e, offsetof(block_q5_1, high), next, single, codes);
}

/* Stores the codes of a block in the order of x. Of eight columns, 0, 2, 1, 3 are in the even bytes and 4, 6,
 * 5, 7 in the odd bytes. */
INLINE void interleave_q8_0(eight e, uint8_t *scales, uint8_t *codes)
{
    const __m512i order = _mm512_set4_epi32(0x0f0b0d09, 0x0e0a0c08, 0x07030501, 0x06020400);
    interleave_halves(e, offsetof(block_q8_0, d), scales);
    UNROLL
    for (int t = 0; t < 4; t++) {
        __m512i eight_columns = eight_bytes(e, (int64_t)offsetof(block_q8_0, q) + 8 * t);
        _mm512_storeu_si512(codes + t * STEP, _mm512_shuffle_epi8(eight_columns, order));
    }
}

/* Interleaves all blocks of eight rows, stretch by stretch and pair by pair. */
INLINE void interleave_blocks(const dsmoe_dtype type, const unsigned char *const row[BLOCK_OCTET],
                              int64_t k, uint8_t *to)
{
    const int64_t bytes = dtype_table[type].bytes, scale_bytes = type == DSMOE_Q5_1 ? 32 : 16,
                  code_bytes = BLOCK_OCTET * bytes - scale_bytes;
    eight e = eight_of(row);
    for (; k > 0; k -= BLOCK_STRETCH) {
        int64_t left = (k < BLOCK_STRETCH ? k : BLOCK_STRETCH) / BLOCK;
        uint8_t *codes = to + left * scale_bytes;
        for (int64_t n; left > 0; left -= n) {
            n = type == DSMOE_Q8_0 || left == 1 ? 1 : 2;
            if (type == DSMOE_Q8_0)
                interleave_q8_0(e, to, codes);
            else if (n == 2)
                interleave_small(type, e, false, to, codes);
            else
                interleave_small(type, e, true, to, codes);
            advance(&e, n * bytes);
            to += n * scale_bytes;
            codes += n * code_bytes;
        }
        to = codes;
    }
}

/* ---- large types --------------------------------------------------------------------------------- */

/* Packs the scales and minima of Q4_K or Q5_K: first to a byte for each part, then to 48 bits for each
 * lane. */
INLINE void interleave_scales(eight e, stretch_scales *to)
{
    const __m512i by_lane = _mm512_set4_epi32(0x0f0d0b09, 0x0e0c0a08, 0x07050301, 0x06040200);
    const __m512i low_half = _mm512_set1_epi64(0xffffffff), six = _mm512_set1_epi32(63);
    const int64_t at = offsetof(block_q4_k, scales);
    __m512i ab = eight_bytes(e, at), c = _mm512_srli_epi64(eight_bytes(e, at + 4), 32);
    __m512i a = _mm512_and_si512(ab, low_half), b = _mm512_srli_epi64(ab, 32);
    __m512i scale = _mm512_or_si512(low_halves(c), move_bits(a, 6, 4, 0x30));
    __m512i min = _mm512_or_si512(high_halves(c), move_bits(b, 6, 4, 0x30));
    scale = _mm512_or_si512(move_bits(a, 0, 0, 63), _mm512_slli_epi64(scale, 32));
    min = _mm512_or_si512(move_bits(b, 0, 0, 63), _mm512_slli_epi64(min, 32));
    scale = _mm512_shuffle_epi8(scale, by_lane);
    min = _mm512_shuffle_epi8(min, by_lane);
    __m512i first = _mm512_slli_epi32(_mm512_srli_epi32(min, 24), 30);
    UNROLL
    for (int p = 0; p < PAIRS; p++) {
        __m512i one = _mm512_and_si512(_mm512_srli_epi32(scale, 8 * p), six);
        first = _mm512_or_si512(first, _mm512_slli_epi32(one, 6 * p));
    }
    first = _mm512_or_si512(first, _mm512_slli_epi32(_mm512_and_si512(min, six), 24));
    __m512i last = _mm512_slli_epi32(_mm512_srli_epi32(min, 26), 12);
    UNROLL
    for (int p = 1; p < 3; p++) {
        __m512i one = _mm512_and_si512(_mm512_srli_epi32(min, 8 * p), six);
        last = _mm512_or_si512(last, _mm512_slli_epi32(one, 6 * (p - 1)));
    }
    __m256i d = _mm512_cvtepi64_epi32(eight_bytes(e, offsetof(block_q4_k, d)));
    _mm256_storeu_si256((__m256i *)to->d, d);
    _mm512_storeu_si512(to->first, first);
    _mm256_storeu_si256((__m256i *)to->last, _mm512_cvtepi32_epi16(last));
}

INLINE void interleave_q4_k(eight e, stretch_q4_k *to)
{
    interleave_scales(e, &to->scales);
    for (int i = 0; i < 2; i++) {
        UNROLL
        for (int t = 0; t < 4; t++) {
            int64_t at = (int64_t)offsetof(block_q4_k, q) + 2 * i * BLOCK + 8 * t;
            __m512i first[2], second[2], a = eight_bytes(e, at), b = eight_bytes(e, at + BLOCK);
            pair_steps(low_halves(a), high_halves(a), first);
            pair_steps(low_halves(b), high_halves(b), second);
            UNROLL
            for (int s = 0; s < 2; s++) {
                __m512i above = _mm512_slli_epi16(second[s], 4);
                _mm512_storeu_si512(to->q[i][2 * t + s], _mm512_or_si512(first[s], above));
            }
        }
    }
}

INLINE void interleave_q5_k(eight e, stretch_q5_k *to)
{
    interleave_scales(e, &to->scales);
    __m512i high[4];
    UNROLL
    for (int t = 0; t < 4; t++)
        high[t] = eight_bytes(e, (int64_t)offsetof(block_q5_k, high) + 8 * t);
    UNROLL
    for (int p = 0; p < PAIRS; p++) {
        __m512i code[STEPS];
        UNROLL
        for (int t = 0; t < 4; t++) {
            __m512i both = eight_bytes(e, (int64_t)offsetof(block_q5_k, q) + p * BLOCK + 8 * t);
            __m512i first = _mm512_or_si512(low_halves(both), move_bits(high[t], 2 * p, 4, 16));
            __m512i second =
                _mm512_or_si512(high_halves(both), move_bits(high[t], 2 * p + 1, 4, 16));
            pair_steps(first, second, code + 2 * t);
        }
        store_codes_5(false, code, to->q[p][0]);
    }
}

/* Makes two steps of all pairs, from columns 8·t … 8·t + 7 of all parts. Joins 4 + 2 bits to codes of 6. */
INLINE void interleave_q6_k_steps(eight e, const int t, stretch_q6_k *to)
{
    __m512i code[PAIRS][2];
    UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = (int64_t)offsetof(block_q6_k, low) + half * 64 + 8 * t;
        __m512i high = eight_bytes(e, (int64_t)offsetof(block_q6_k, high) + half * BLOCK + 8 * t);
        __m512i a = eight_bytes(e, at), b = eight_bytes(e, at + BLOCK);
        pair_steps(_mm512_or_si512(low_halves(a), move_bits(high, 0, 4, 0x30)),
                   _mm512_or_si512(low_halves(b), move_bits(high, 2, 4, 0x30)), code[2 * half]);
        pair_steps(_mm512_or_si512(high_halves(a), move_bits(high, 4, 4, 0x30)),
                   _mm512_or_si512(high_halves(b), move_bits(high, 6, 4, 0x30)),
                   code[2 * half + 1]);
    }
    UNROLL
    for (int s = 0; s < 2; s++) {
        UNROLL
        for (int i = 0; i < SIX_STEPS; i++) {
            __m512i above = move_bits(code[3][s], 2 * i, 6, (char)0xc0);
            _mm512_storeu_si512(to->q[2 * t + s][i], _mm512_or_si512(code[i][s], above));
        }
    }
}

INLINE void interleave_q6_k(eight e, stretch_q6_k *to, scales_q6_k *scales)
{
    const __m512i by_half = _mm512_set4_epi32(0x0f0d0e0c, 0x0b090a08, 0x07050604, 0x03010200);
    UNROLL
    for (int t = 0; t < 4; t++) interleave_q6_k_steps(e, t, to);
    UNROLL
    for (int i = 0; i < 2; i++) {
        int64_t at = (int64_t)offsetof(block_q6_k, scales) + 8 * i;
        __m512i words = _mm512_shuffle_epi8(eight_bytes(e, at), by_half);
        UNROLL
        for (int j = 0; j < 4; j++) {
            __m128i one = first_words(_mm512_srli_epi64(words, 16 * j));
            _mm_storeu_si128((__m128i *)scales->scale[2 * i + j / 2][j % 2], one);
        }
    }
    __m512i last = eight_bytes(e, (int64_t)sizeof(block_q6_k) - 8);
    _mm_storeu_si128((__m128i *)scales->d, first_words(_mm512_srli_epi64(last, 48)));
}

/* ---- all types ----------------------------------------------------------------------------------- */

#define INTERLEAVE_SMALL(type, TYPE)                                                               \
    void interleave_##type##_avx512(const unsigned char *const row[BLOCK_OCTET], int64_t k,        \
                                    void *octet)                                                   \
    {                                                                                              \
        interleave_blocks(TYPE, row, k, octet);                                                    \
    }
INTERLEAVE_SMALL(q4_0, DSMOE_Q4_0)
INTERLEAVE_SMALL(q5_0, DSMOE_Q5_0)
INTERLEAVE_SMALL(q5_1, DSMOE_Q5_1)
INTERLEAVE_SMALL(q8_0, DSMOE_Q8_0)

void interleave_q4_k_avx512(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet)
{
    eight e = eight_of(row);
    stretch_q4_k *to = octet;
    for (; k > 0; k -= SUPER_BLOCK, advance(&e, sizeof(block_q4_k))) interleave_q4_k(e, to++);
}

void interleave_q5_k_avx512(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet)
{
    eight e = eight_of(row);
    stretch_q5_k *to = octet;
    for (; k > 0; k -= SUPER_BLOCK, advance(&e, sizeof(block_q5_k))) interleave_q5_k(e, to++);
}

void interleave_q6_k_avx512(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet)
{
    eight e = eight_of(row);
    for (int64_t i = 0; i < k / SUPER_BLOCK; i++, advance(&e, sizeof(block_q6_k))) {
        place_q6_k to = place_of_q6_k(octet, i, k / SUPER_BLOCK);
        interleave_q6_k(e, to.codes, to.scales);
    }
}

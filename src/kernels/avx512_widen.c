/* avx512_widen.c - block types to float32, sixteen numbers at a time, for backward through frozen weights.
 *
 * Codes times scales are exact (see widen_blocks.c), so fused operations give the same bits. */
#include <string.h>

#include "base/half.h"
#include "kernels/avx512.h"
#include "kernels/blocks.h"

/* Stores scale·code - offset for sixteen codes. */
INLINE void put_line(__m128i codes, __m512 scale, __m512 offset, float *dst)
{
    __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    _mm512_storeu_ps(dst, _mm512_fmsub_ps(x, scale, offset));
}

/* Stores scale·(code - middle) for sixteen codes. The difference is in integers, so that zeros get the
 * right sign. */
INLINE void put_centred(__m128i codes, int middle, float scale, float *dst)
{
    __m512i x = _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(middle));
    _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(scale)));
}

INLINE __m128i low_half(__m128i bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(15)); }
INLINE __m128i high_half(__m128i bytes) { return low_half(_mm_srli_epi16(bytes, 4)); }

INLINE __m128i load_bytes(const void *at) { return _mm_loadu_si128((const __m128i *)at); }

void widen_q4_0_avx512(int64_t n, const void *src, float *dst)
{
    const block_q4_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d);
        __m128i q = load_bytes(block->q);
        put_centred(low_half(q), 8, d, dst);
        put_centred(high_half(q), 8, d, dst + 16);
    }
}

/* Adds the fifth bits to sixteen codes. */
INLINE __m128i with_fifth(__m128i low, const uint8_t high[2])
{
    __mmask16 bits = (__mmask16)(high[0] | high[1] << 8);
    return _mm_or_si128(low, _mm_maskz_set1_epi8(bits, 16));
}

void widen_q5_0_avx512(int64_t n, const void *src, float *dst)
{
    const block_q5_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d);
        __m128i q = load_bytes(block->q);
        put_centred(with_fifth(low_half(q), block->high), 16, d, dst);
        put_centred(with_fifth(high_half(q), block->high + 2), 16, d, dst + 16);
    }
}

void widen_q5_1_avx512(int64_t n, const void *src, float *dst)
{
    const block_q5_1 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        __m512 scale = _mm512_set1_ps(half_load_f16(block->d));
        __m512 offset = _mm512_set1_ps(-half_load_f16(block->m));
        __m128i q = load_bytes(block->q);
        put_line(with_fifth(low_half(q), block->high), scale, offset, dst);
        put_line(with_fifth(high_half(q), block->high + 2), scale, offset, dst + 16);
    }
}

void widen_q8_0_avx512(int64_t n, const void *src, float *dst)
{
    const block_q8_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        __m512 scale = _mm512_set1_ps(half_load_f16(block->d));
        for (int i = 0; i < BLOCK; i += 16) {
            __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(block->q + i)));
            _mm512_storeu_ps(dst + i, _mm512_mul_ps(x, scale));
        }
    }
}

/* The numbers of part i of a block are scale[i]·code - offset[i]. */
typedef struct lines {
    float scale[8], offset[8];
} lines;

/* Stores eight bytes times a number. */
INLINE void put_products(uint64_t bytes, float number, float to[8])
{
    __m256i ints = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(ints), _mm256_set1_ps(number)));
}

/* The lines of all parts of a block: see block_scale_min. */
INLINE lines lines_of(const uint8_t d[2], const uint8_t dmin[2], const uint8_t scales[12])
{
    const uint32_t four = 0x0f0f0f0f, six = 0x3f3f3f3f, upper = 0x30303030;
    uint32_t a, b, c;
    memcpy(&a, scales, sizeof a);
    memcpy(&b, scales + 4, sizeof b);
    memcpy(&c, scales + 8, sizeof c);
    lines l;
    put_products((a & six) | (uint64_t)((c & four) | (a >> 2 & upper)) << 32, half_load_f16(d),
                 l.scale);
    put_products((b & six) | (uint64_t)((c >> 4 & four) | (b >> 2 & upper)) << 32,
                 half_load_f16(dmin), l.offset);
    return l;
}

/* Stores sixteen numbers of part i. */
INLINE void put_part(__m128i codes, const lines *l, int i, float *dst)
{
    put_line(codes, _mm512_set1_ps(l->scale[i]), _mm512_set1_ps(l->offset[i]), dst);
}

void widen_q4_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q4_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++) {
        lines l = lines_of(block->d, block->dmin, block->scales);
        for (int pair = 0; pair < 4; pair++, dst += 2 * BLOCK)
            for (int i = 0; i < BLOCK; i += 16) {
                __m128i q = load_bytes(block->q + pair * BLOCK + i);
                put_part(low_half(q), &l, 2 * pair, dst + i);
                put_part(high_half(q), &l, 2 * pair + 1, dst + BLOCK + i);
            }
    }
}

/* Bit `part` of sixteen bytes, moved to the fifth bit. */
INLINE __m128i fifth_of(__m128i high, int part)
{
    __m128i bit = _mm_and_si128(high, _mm_set1_epi8((char)(1 << part)));
    return _mm_and_si128(_mm_cmpeq_epi8(bit, _mm_set1_epi8((char)(1 << part))), _mm_set1_epi8(16));
}

void widen_q5_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q5_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++) {
        lines l = lines_of(block->d, block->dmin, block->scales);
        for (int part = 0; part < 8; part++, dst += BLOCK)
            for (int i = 0; i < BLOCK; i += 16) {
                __m128i q = load_bytes(block->q + part / 2 * BLOCK + i);
                q = part % 2 ? high_half(q) : low_half(q);
                q = _mm_or_si128(q, fifth_of(load_bytes(block->high + i), part));
                put_part(q, &l, part, dst + i);
            }
    }
}

void widen_q6_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q6_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++, dst += SUPER_BLOCK) {
        float scale[16];
        __m512 ints = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(block->scales)));
        _mm512_storeu_ps(scale, _mm512_mul_ps(ints, _mm512_set1_ps(half_load_f16(block->d))));
        UNROLL
        for (int part = 0; part < 16; part++) {
            int half = part / 8, pair = part / 2 % 4, odd = part % 2 * 16;
            __m128i low = load_bytes(block->low + half * 64 + pair % 2 * 32 + odd);
            __m128i high = _mm_srli_epi16(load_bytes(block->high + half * 32 + odd), pair * 2);
            low = pair / 2 ? high_half(low) : low_half(low);
            high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
            put_centred(_mm_or_si128(low, high), 32, scale[part], dst + part * 16);
        }
    }
}

/* ---- the largest number that a block can have ----------------------------------------------------- */

/* *largest becomes the larger of itself and |x|. Without signs, the bits of floats have the order of the
 * floats, and NaN is above all others. */
INLINE void grow(uint32_t *largest, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= INT32_MAX;
    if (bits > *largest) *largest = bits;
}

/* The numbers of a part are between those of the first and the last code. */
INLINE void largest_of_lines(const lines *l, float last_code, uint32_t largest[8])
{
    const __m256i no_sign = _mm256_set1_epi32(INT32_MAX);
    __m256 scale = _mm256_loadu_ps(l->scale), offset = _mm256_loadu_ps(l->offset);
    __m256i low = _mm256_and_si256(_mm256_castps_si256(offset), no_sign);
    __m256 end = _mm256_fmsub_ps(scale, _mm256_set1_ps(last_code), offset);
    __m256i high = _mm256_and_si256(_mm256_castps_si256(end), no_sign);
    __m256i before = _mm256_loadu_si256((const __m256i *)largest);
    before = _mm256_max_epu32(before, _mm256_max_epu32(low, high));
    _mm256_storeu_si256((__m256i *)largest, before);
}

INLINE void largest_of_small(dsmoe_dtype type, const unsigned char *block, uint32_t *largest)
{
    float d = half_load_f16(block); /* d comes first in each of these types */
    switch (type) {
    case DSMOE_Q4_0: grow(largest, 8.0f * d); break;
    case DSMOE_Q5_0: grow(largest, 16.0f * d); break;
    case DSMOE_Q8_0: grow(largest, 128.0f * d); break;
    default: { /* Q5_1 */
        float m = half_load_f16(block + 2);
        grow(largest, m);
        grow(largest, 31.0f * d + m);
    }
    }
}

INLINE void largest_of_q6_k(const block_q6_k *block, uint32_t largest[8])
{
    float d = half_load_f16(block->d);
    for (int part = 0; part < 16; part++)
        grow(&largest[part / 2], 32.0f * (d * (float)block->scales[part]));
}

void largest_avx512(dsmoe_dtype type, int64_t n, const void *src, uint32_t *largest)
{
    const unsigned char *block = src;
    for (int64_t j = 0; j < n; j += dtype_table[type].block, block += dtype_table[type].bytes) {
        uint32_t *to = largest + j / BLOCK;
        if (type == DSMOE_Q4_K || type == DSMOE_Q5_K) { /* both have the same head */
            const block_q4_k *b = (const block_q4_k *)block;
            lines l = lines_of(b->d, b->dmin, b->scales);
            largest_of_lines(&l, type == DSMOE_Q4_K ? 15.0f : 31.0f, to);
        } else if (type == DSMOE_Q6_K) {
            largest_of_q6_k((const block_q6_k *)block, to);
        } else {
            largest_of_small(type, block, to);
        }
    }
}

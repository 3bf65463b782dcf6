/* avx512_widen.c - block types to float32, sixteen numbers at a time: what backward through frozen weights takes of
 * them. Codes times scales are exact (see widen_blocks.c), so fused or not comes to the same bits. */
#include "base/half.h"
#include "kernels/avx512.h"
#include "kernels/blocks.h"

/* scale·code - offset of sixteen bytes. */
INLINE void put_line(__m128i codes, __m512 scale, __m512 offset, float *dst)
{
    __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    _mm512_storeu_ps(dst, _mm512_fmsub_ps(x, scale, offset));
}

/* scale·(code - middle): the difference in integers, so that zeros have the sign that they should. */
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

/* Sixteen bytes with the fifth bits of a mask. */
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

/* The numbers of a part of 32 are scale·code - offset. */
typedef struct line {
    __m512 scale, offset;
} line;

INLINE line line_of(const uint8_t d[2], const uint8_t dmin[2], const uint8_t *scales, int part)
{
    int scale, min;
    block_scale_min(scales, part, &scale, &min);
    return (line){_mm512_set1_ps(half_load_f16(d) * (float)scale),
                  _mm512_set1_ps(half_load_f16(dmin) * (float)min)};
}

void widen_q4_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q4_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++)
        for (int pair = 0; pair < 4; pair++, dst += 2 * BLOCK) {
            line low = line_of(block->d, block->dmin, block->scales, 2 * pair);
            line high = line_of(block->d, block->dmin, block->scales, 2 * pair + 1);
            for (int i = 0; i < BLOCK; i += 16) {
                __m128i q = load_bytes(block->q + pair * BLOCK + i);
                put_line(low_half(q), low.scale, low.offset, dst + i);
                put_line(high_half(q), high.scale, high.offset, dst + BLOCK + i);
            }
        }
}

/* Bit `part` of sixteen bytes, as the fifth. */
INLINE __m128i fifth_of(__m128i high, int part)
{
    __m128i bit = _mm_and_si128(high, _mm_set1_epi8((char)(1 << part)));
    return _mm_and_si128(_mm_cmpeq_epi8(bit, _mm_set1_epi8((char)(1 << part))), _mm_set1_epi8(16));
}

void widen_q5_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q5_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++)
        for (int part = 0; part < 8; part++, dst += BLOCK) {
            line l = line_of(block->d, block->dmin, block->scales, part);
            for (int i = 0; i < BLOCK; i += 16) {
                __m128i q = load_bytes(block->q + part / 2 * BLOCK + i);
                q = part % 2 ? high_half(q) : low_half(q);
                q = _mm_or_si128(q, fifth_of(load_bytes(block->high + i), part));
                put_line(q, l.scale, l.offset, dst + i);
            }
        }
}

void widen_q6_k_avx512(int64_t n, const void *src, float *dst)
{
    const block_q6_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++, dst += SUPER_BLOCK) {
        float d = half_load_f16(block->d);
        for (int part = 0; part < 16; part++) {
            int half = part / 8, pair = part / 2 % 4, odd = part % 2 * 16;
            __m128i low = load_bytes(block->low + half * 64 + pair % 2 * 32 + odd);
            __m128i high = _mm_srli_epi16(load_bytes(block->high + half * 32 + odd), pair * 2);
            low = pair / 2 ? high_half(low) : low_half(low);
            high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
            put_centred(_mm_or_si128(low, high), 32, d * (float)block->scales[part],
                        dst + part * 16);
        }
    }
}

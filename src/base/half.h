/* half.h - the 16-bit floating-point types as bits: to float32 and back. It is straight-line code, so that
 * compilers vectorise loops over it. */
#ifndef DSMOE_BASE_HALF_H
#define DSMOE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 1 sign, 5 exponent, 10 fraction bits. Exponent 31 is infinity or NaN, 0 a multiple of 2^-24. */
static inline float half_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    /* Normal numbers have the same bits with another bias: 15 becomes 127. */
    uint32_t normal = (magnitude << 13) + (112u << 23);
    /* For infinity and NaN, the exponent must be all ones here too. */
    uint32_t large = normal + (112u << 23);
    /* The last bit of 0.5 is worth 2^-24, so adding the bits to it gives 0.5 plus the number. */
    uint32_t small = half_bits(half_float(half_bits(0.5f) + magnitude) - 0.5f);
    uint32_t bits = magnitude < 0x0400 ? small : magnitude < 0x7c00 ? normal : large;
    return half_float(sign | bits);
}

/* Rounds to nearest, ties to even. Numbers that are too large become infinite; NaN stays NaN. */
static inline uint16_t half_to_f16(float value)
{
    uint32_t bits = half_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    /* If a fraction rounds up to the next power of two, it carries into the exponent, as it should. */
    uint32_t odd = magnitude >> 13 & 1;
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
    /* Below 2^-14 the addition rounds to a multiple of 2^-24. */
    uint32_t small = half_bits(half_float(magnitude) + 0.5f) - half_bits(0.5f);
    uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t half = magnitude < 0x38800000 ? small : magnitude < 0x47800000 ? normal : large;
    return (uint16_t)(sign | half);
}

static inline float half_from_bf16(uint16_t half) { return half_float((uint32_t)half << 16); }

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t half_to_bf16(float value)
{
    uint32_t bits = half_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Reads a little-endian float16 at any address, as blocks have them. */
static inline float half_load_f16(const void *at)
{
    const uint8_t *byte = at;
    return half_from_f16((uint16_t)(byte[0] | byte[1] << 8));
}

static inline void half_store_f16(void *at, uint16_t half)
{
    uint8_t *byte = at;
    byte[0] = (uint8_t)(half & 255);
    byte[1] = (uint8_t)(half >> 8);
}

#endif

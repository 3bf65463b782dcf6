/* narrow.c - float32 to float16 and bfloat16. */
#include "formats/narrow.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t f16_of(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) /* 65536 and above */
        return (uint16_t)(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
    /* Below 2^-14 a float16 is a multiple of 2^-24, as is a float32 from 0.5 to 1: let the addition
     * round. */
    if (magnitude < 0x38800000)
        return (uint16_t)(sign | (bits_of(fabsf(value) + 0.5f) - bits_of(0.5f)));
    /* A mantissa that rounds up to the next power of two carries into the exponent, as it should. */
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - ((127u - 15u) << 23) + 0xfff + odd) >> 13);
}

static uint16_t bf16_of(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void narrow_f16(const float *in, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = f16_of(in[i]);
}

void narrow_bf16(const float *in, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = bf16_of(in[i]);
}

/* widen_blocks.c - block types to float32 in plain C: what their bytes mean.
 *
 * d has 11 bits, a scale at most 7 and a code at most 7. So no product here is rounded; only the sum with a
 * minimum is. Every way to compute a number therefore gives the same bits. */
#include "kernels/blocks.h"

#include "base/half.h"

void widen_q4_0(int64_t n, const void *src, float *dst)
{
    const block_q4_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d);
        for (int i = 0; i < 16; i++) dst[i] = d * (float)((block->q[i] & 15) - 8);
        for (int i = 0; i < 16; i++) dst[16 + i] = d * (float)((block->q[i] >> 4) - 8);
    }
}

/* The codes of Q5_0 and Q5_1. */
static void five_bits(const uint8_t high[4], const uint8_t q[16], int codes[BLOCK])
{
    uint32_t fifth = (uint32_t)high[0] | (uint32_t)high[1] << 8 | (uint32_t)high[2] << 16 |
                     (uint32_t)high[3] << 24;
    for (int i = 0; i < 16; i++) {
        codes[i] = (q[i] & 15) | (int)(fifth >> i & 1) << 4;
        codes[16 + i] = q[i] >> 4 | (int)(fifth >> (16 + i) & 1) << 4;
    }
}

void widen_q5_0(int64_t n, const void *src, float *dst)
{
    const block_q5_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d);
        int codes[BLOCK];
        five_bits(block->high, block->q, codes);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)(codes[i] - 16);
    }
}

void widen_q5_1(int64_t n, const void *src, float *dst)
{
    const block_q5_1 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d), m = half_load_f16(block->m);
        int codes[BLOCK];
        five_bits(block->high, block->q, codes);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)codes[i] + m;
    }
}

void widen_q8_0(int64_t n, const void *src, float *dst)
{
    const block_q8_0 *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float d = half_load_f16(block->d);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)block->q[i];
    }
}

/* The numbers of a part are step·code - offset. */
typedef struct line {
    float step, offset;
} line;

static line line_of(const uint8_t d[2], const uint8_t dmin[2], const uint8_t *scales, int part)
{
    int scale, min;
    block_scale_min(scales, part, &scale, &min);
    return (line){half_load_f16(d) * (float)scale, half_load_f16(dmin) * (float)min};
}

/* The low four bits of a code. Two parts share these bytes. */
static int low_bits(const uint8_t *q, int part, int i)
{
    return q[part / 2 * BLOCK + i] >> part % 2 * 4 & 15;
}

void widen_q4_k(int64_t n, const void *src, float *dst)
{
    const block_q4_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++)
        for (int part = 0; part < 8; part++, dst += BLOCK) {
            line l = line_of(block->d, block->dmin, block->scales, part);
            for (int i = 0; i < BLOCK; i++)
                dst[i] = l.step * (float)low_bits(block->q, part, i) - l.offset;
        }
}

void widen_q5_k(int64_t n, const void *src, float *dst)
{
    const block_q5_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++)
        for (int part = 0; part < 8; part++, dst += BLOCK) {
            line l = line_of(block->d, block->dmin, block->scales, part);
            for (int i = 0; i < BLOCK; i++) {
                int top = (block->high[i] >> part & 1) << 4;
                dst[i] = l.step * (float)(low_bits(block->q, part, i) | top) - l.offset;
            }
        }
}

void widen_q6_k(int64_t n, const void *src, float *dst)
{
    const block_q6_k *block = src;
    for (int64_t b = 0; b < n / SUPER_BLOCK; b++, block++, dst += SUPER_BLOCK) {
        float d = half_load_f16(block->d);
        for (int part = 0; part < 16; part++) {
            /* Parts are 16 numbers. Each half of the block has four pairs of parts, which share its bytes. */
            int half = part / 8, pair = part / 2 % 4, odd = part % 2 * 16;
            const uint8_t *low = block->low + half * 64 + pair % 2 * 32 + odd;
            const uint8_t *high = block->high + half * 32 + odd;
            float step = d * (float)block->scales[part];
            for (int i = 0; i < 16; i++) {
                int q = (low[i] >> pair / 2 * 4 & 15) | (high[i] >> pair * 2 & 3) << 4;
                dst[part * 16 + i] = step * (float)(q - 32);
            }
        }
    }
}

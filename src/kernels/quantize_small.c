/* quantize_small.c - the types whose 32 numbers share one scale: Q4_0, Q5_0, Q8_0. */
#include "kernels/quantize_search.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

/* ---- Q4_0 and Q5_0 -------------------------------------------------------------------------- */

/* Up to four blocks at once: their scales as stored, and their codes 0 ≤ q < 2·top. */
typedef struct small_blocks {
    uint16_t d[PARTS];
    uint8_t q[PARTS][BLOCK];
} small_blocks;

static void search_blocks(int n_blocks, const float *x, const float *importance, float top,
                          small_blocks *out)
{
    parts p = {.n = BLOCK};
    measure m[PARTS];
    lanes scale;
    for (int j = 0; j < n_blocks; j++) {
        m[j] = measure_block(BLOCK, x + j * BLOCK, importance ? importance + j * BLOCK : NULL);
        parts_load(&p, j, &m[j], x + j * BLOCK, 0);
    }
    symmetric_search(&p, top, &scale);
    for (int j = 0; j < n_blocks; j++) {
        scale[j] = scale_round(scale[j], m[j].unit);
        out->d[j] = half_to_f16(scale[j] * m[j].unit);
    }
    symmetric_write(&p, top, &scale, out->q[0]);
}

/* Block j of them, at `out`. */
typedef void write_fn(const small_blocks *found, int j, void *out);

static void quantize_blocks(int64_t n, const float *x, const float *importance, float top,
                            write_fn *write, size_t size, unsigned char *out)
{
    small_blocks found;
    for (int64_t left = n / BLOCK; left > 0; left -= PARTS) {
        int count = left < PARTS ? (int)left : PARTS;
        search_blocks(count, x, importance, top, &found);
        for (int j = 0; j < count; j++, out += size) write(&found, j, out);
        x += PARTS * BLOCK;
        if (importance) importance += PARTS * BLOCK;
    }
}

static void write_q4_0(const small_blocks *found, int j, void *out)
{
    block_q4_0 *block = out;
    const uint8_t *q = found->q[j];
    half_store_f16(block->d, found->d[j]);
    for (int i = 0; i < 16; i++) block->q[i] = (uint8_t)(q[i] | q[16 + i] << 4);
}

void quantize_row_q4_0(int64_t n, const float *x, const float *importance, void *out)
{
    quantize_blocks(n, x, importance, 8.0f, write_q4_0, sizeof(block_q4_0), out);
}

static void write_q5_0(const small_blocks *found, int j, void *out)
{
    block_q5_0 *block = out;
    const uint8_t *q = found->q[j];
    half_store_f16(block->d, found->d[j]);
    memset(block->high, 0, sizeof block->high);
    for (int i = 0; i < BLOCK; i++) block->high[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
    for (int i = 0; i < 16; i++) block->q[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
}

void quantize_row_q5_0(int64_t n, const float *x, const float *importance, void *out)
{
    quantize_blocks(n, x, importance, 16.0f, write_q5_0, sizeof(block_q5_0), out);
}

/* ---- Q8_0 ----------------------------------------------------------------------------------- */

/* With 8 bits there is nothing to gain by a search: the largest number becomes ±127. */
void quantize_row_q8_0(int64_t n, const float *x, const float *importance, void *out)
{
    (void)importance;
    block_q8_0 *block = out;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, x += BLOCK) {
        float largest = 0.0f;
        for (int i = 0; i < BLOCK; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        float d = scale_round(largest / 127.0f, 1.0f), inverse = inverse_or_zero(d);
        half_store_f16(block->d, half_to_f16(d));
        for (int i = 0; i < BLOCK; i++) {
            float q = x[i] * inverse;
            q = q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
            block->q[i] = (int8_t)nearest(q);
        }
    }
}

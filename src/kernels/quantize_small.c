/* quantize_small.c - the types whose 32 numbers share one scale: Q4_0, Q5_0, Q5_1, Q8_0. */
#include "kernels/quantize_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

/* ---- a few blocks at once ------------------------------------------------------------------- */

/* Up to four blocks that are searched at the same time. */
typedef struct few_blocks {
    int n;
    parts p;
    float unit[PARTS];
} few_blocks;

/* Blocks as they are stored, except that each code has a byte. */
typedef struct small_blocks {
    uint16_t d[PARTS], m[PARTS];
    uint8_t q[PARTS][BLOCK];
} small_blocks;

typedef struct small_type {
    void (*search)(const few_blocks *few, small_blocks *found);
    void (*write)(const small_blocks *found, int j, void *out); /* writes block j of `found` */
    size_t size;
} small_type;

static void load_blocks(few_blocks *few, int n, const float *x, const float *importance)
{
    *few = (few_blocks){.n = n, .p.n = BLOCK};
    for (int j = 0; j < n; j++) {
        measure m = measure_block(BLOCK, x + j * BLOCK, importance ? importance + j * BLOCK : NULL);
        parts_load(&few->p, j, &m, x + j * BLOCK, 0);
        few->unit[j] = m.unit;
    }
}

static void quantize_blocks(const small_type *type, int64_t n, const float *x,
                            const float *importance, unsigned char *out)
{
    few_blocks few;
    small_blocks found;
    for (int64_t left = n / BLOCK; left > 0; left -= PARTS) {
        load_blocks(&few, left < PARTS ? (int)left : PARTS, x, importance);
        type->search(&few, &found);
        for (int j = 0; j < few.n; j++, out += type->size) type->write(&found, j, out);
        x += PARTS * BLOCK;
        if (importance) importance += PARTS * BLOCK;
    }
}

static void pack_five_bits(const uint8_t q[BLOCK], uint8_t high[4], uint8_t low[16])
{
    memset(high, 0, 4);
    for (int i = 0; i < BLOCK; i++) high[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
    for (int i = 0; i < 16; i++) low[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
}

/* ---- Q4_0 and Q5_0 -------------------------------------------------------------------------- */

static void search_symmetric(const few_blocks *few, float top, small_blocks *found)
{
    lanes scale;
    symmetric_search(&few->p, top, &scale);
    for (int j = 0; j < few->n; j++) {
        scale[j] = scale_round(scale[j], few->unit[j]);
        found->d[j] = half_to_f16(scale[j] * few->unit[j]);
    }
    symmetric_write(&few->p, top, &scale, found->q[0]);
}

static void search_q4_0(const few_blocks *few, small_blocks *found)
{
    search_symmetric(few, 8.0f, found);
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
    static const small_type type = {search_q4_0, write_q4_0, sizeof(block_q4_0)};
    quantize_blocks(&type, n, x, importance, out);
}

static void search_q5_0(const few_blocks *few, small_blocks *found)
{
    search_symmetric(few, 16.0f, found);
}

static void write_q5_0(const small_blocks *found, int j, void *out)
{
    block_q5_0 *block = out;
    half_store_f16(block->d, found->d[j]);
    pack_five_bits(found->q[j], block->high, block->q);
}

void quantize_row_q5_0(int64_t n, const float *x, const float *importance, void *out)
{
    static const small_type type = {search_q5_0, write_q5_0, sizeof(block_q5_0)};
    quantize_blocks(&type, n, x, importance, out);
}

/* ---- Q5_1 ----------------------------------------------------------------------------------- */

static const float top_q5_1 = 31.0f;

/* The float16 that is `step` steps above the one nearest to a minimum. Both are in units; never infinite. */
static float min_round(float min, float unit, int step)
{
    int half = half_to_f16(fabsf(min) * unit), at = (min < 0.0f ? -half : half) + step;
    int size = abs(at) < 0x7bff ? abs(at) : 0x7bff;
    return copysignf(half_from_f16((uint16_t)size), (float)at) / unit;
}

/* Replaces the scales by the best float16s for the given minima and the codes that *at leads to. */
static void fit_scales(const few_blocks *few, lines *at)
{
    line_sums s;
    lines_sum(&few->p, top_q5_1, at, &s);
    at->scale += s.qr * lanes_inverse(s.qq);
    for (int j = 0; j < few->n; j++) at->scale[j] = scale_round(at->scale[j], few->unit[j]);
}

/* If the numbers are nearly the same, a minimum in float16 may be too coarse for their differences. So its
 * two neighbours are tried too. Each minimum is tried with the scale that was best before rounding, and with
 * scales that give the largest number one of the last codes. */
static void search_q5_1(const few_blocks *few, small_blocks *found)
{
    enum { SCALES = 4 };
    static const int steps[] = {0, 1, -1};
    lanes high = few->p.x[0], least = lanes_all(INFINITY), errors;
    lines real, best = {0};
    for (int i = 1; i < BLOCK; i++) high = lanes_select(few->p.x[i] > high, few->p.x[i], high);
    lines_search(&few->p, top_q5_1, -INFINITY, &real);
    for (int i = 0; i < 3 * SCALES; i++) {
        lines trial = real;
        for (int j = 0; j < few->n; j++)
            trial.min[j] = min_round(real.min[j], few->unit[j], steps[i / SCALES]);
        lanes range = lanes_clamp(high + trial.min, 0.0f, INFINITY);
        if (i % SCALES) trial.scale = range / (top_q5_1 + 1.0f - (float)(i % SCALES));
        fit_scales(few, &trial);
        lines_errors(&few->p, top_q5_1, &trial, &errors);
        lines_keep_better(&errors, &trial, &least, &best);
    }
    for (int j = 0; j < few->n; j++) {
        found->d[j] = half_to_f16(best.scale[j] * few->unit[j]);
        found->m[j] = half_to_f16((0.0f - best.min[j]) * few->unit[j]);
    }
    lines_write(&few->p, top_q5_1, &best, found->q[0]);
}

static void write_q5_1(const small_blocks *found, int j, void *out)
{
    block_q5_1 *block = out;
    half_store_f16(block->d, found->d[j]);
    half_store_f16(block->m, found->m[j]);
    pack_five_bits(found->q[j], block->high, block->q);
}

void quantize_row_q5_1(int64_t n, const float *x, const float *importance, void *out)
{
    static const small_type type = {search_q5_1, write_q5_1, sizeof(block_q5_1)};
    quantize_blocks(&type, n, x, importance, out);
}

/* ---- Q8_0 ----------------------------------------------------------------------------------- */

/* Scales are positive and codes from -127 to 127, as other programs expect them. The numbers are rounded
 * again for each scale that is tried. The first is the smallest that reaches the largest number, the others
 * are a little larger; the best has an error a tenth below that of the first. */
static void search_q8_0(const few_blocks *few, small_blocks *found)
{
    enum { TRIES = 11 };
    const float top = 128.0f;
    lanes largest = {0}, least = lanes_all(INFINITY), best = {0};
    for (int i = 0; i < BLOCK; i++) {
        lanes size = lanes_magnitude(few->p.x[i]);
        largest = lanes_select(size > largest, size, largest);
    }
    for (int i = 0; i < TRIES; i++) {
        lanes trial = largest / (top - 1.0f - (float)i * 0.5f);
        symmetric_sums sums;
        for (int j = 0; j < few->n; j++) trial[j] = scale_round(trial[j], few->unit[j]);
        symmetric_sum(&few->p, top, &trial, &sums);
        best = lanes_select(sums.rr < least, trial, best);
        least = lanes_select(sums.rr < least, sums.rr, least);
    }
    for (int j = 0; j < few->n; j++) found->d[j] = half_to_f16(best[j] * few->unit[j]);
    symmetric_write(&few->p, top, &best, found->q[0]);
}

static void write_q8_0(const small_blocks *found, int j, void *out)
{
    block_q8_0 *block = out;
    half_store_f16(block->d, found->d[j]);
    for (int i = 0; i < BLOCK; i++) {
        int q = found->q[j][i] - 128;
        block->q[i] = (int8_t)(q < -127 ? -127 : q);
    }
}

void quantize_row_q8_0(int64_t n, const float *x, const float *importance, void *out)
{
    static const small_type type = {search_q8_0, write_q8_0, sizeof(block_q8_0)};
    quantize_blocks(&type, n, x, importance, out);
}

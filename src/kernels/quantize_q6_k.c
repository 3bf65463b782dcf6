/* quantize_q6_k.c - Q6_K: sixteen parts of 16 numbers, each with a scale of 8 bits. */
#include "kernels/quantize_search.h"

#include "base/half.h"

enum { PART = 16, GROUPS = SUPER_BLOCK / PART / PARTS };

static const float top = 32.0f; /* codes are below it */

typedef struct group {
    parts p;
    lanes scale; /* the best for each part, before rounding */
} group;

/* A block's d, the integers that it is multiplied by, and the error with them. */
typedef struct choice {
    float d, error;
    lanes integer[GROUPS];
    symmetric_sums sums[GROUPS];
} choice;

static lanes clamp_integers(lanes v) { return lanes_clamp(v, -128.0f, 127.0f); }

/* The best integers for a given d, among those near the scales. The numbers are rounded again for each. */
static choice choose(const group *groups, float d)
{
    choice c = {.d = d};
    for (int g = 0; g < GROUPS; g++) {
        lanes nearby = clamp_integers(lanes_nearest(groups[g].scale * inverse_or_zero(d)));
        symmetric_sums best = {.rr = lanes_all(INFINITY)}, sums;
        for (int step = -1; step <= 1; step++) {
            lanes integer = clamp_integers(nearby + (float)step), scale = d * integer;
            symmetric_sum(&groups[g].p, top, &scale, &sums);
            lanes_mask better = sums.rr < best.rr;
            c.integer[g] = lanes_select(better, integer, c.integer[g]);
            best.qq = lanes_select(better, sums.qq, best.qq);
            best.qr = lanes_select(better, sums.qr, best.qr);
            best.rr = lanes_select(better, sums.rr, best.rr);
        }
        c.sums[g] = best;
        c.error += lanes_sum(best.rr);
    }
    return c;
}

/* The d with which the scale of largest magnitude is -128. */
static float first_d(const group *groups)
{
    float largest = 0.0f;
    for (int g = 0; g < GROUPS; g++)
        for (int j = 0; j < PARTS; j++) {
            float scale = groups[g].scale[j];
            largest = fabsf(scale) > fabsf(largest) ? scale : largest;
        }
    return largest / -128.0f;
}

/* The best d for the integers and codes of a choice. */
static float better_d(const choice *c)
{
    float along = 0.0f, squares = 0.0f;
    for (int g = 0; g < GROUPS; g++) {
        lanes integer = c->integer[g];
        along += lanes_sum(integer * c->sums[g].qr);
        squares += lanes_sum(integer * integer * c->sums[g].qq);
    }
    return c->d + along * inverse_or_zero(squares);
}

static void write_block(const group *groups, const choice *c, float unit, block_q6_k *block)
{
    uint8_t q[SUPER_BLOCK];
    for (int g = 0; g < GROUPS; g++) {
        lanes scale = c->d * c->integer[g];
        symmetric_write(&groups[g].p, top, &scale, q + g * PARTS * PART);
        for (int j = 0; j < PARTS; j++) block->scales[g * PARTS + j] = (int8_t)c->integer[g][j];
    }
    half_store_f16(block->d, half_to_f16(c->d * unit));
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *at = q + half * 128 + i;
            uint8_t *low = block->low + half * 64 + i;
            low[0] = (uint8_t)((at[0] & 15) | (at[64] & 15) << 4);
            low[32] = (uint8_t)((at[32] & 15) | (at[96] & 15) << 4);
            block->high[half * 32 + i] =
                (uint8_t)(at[0] >> 4 | at[32] >> 4 << 2 | at[64] >> 4 << 4 | at[96] >> 4 << 6);
        }
}

static void quantize_block(const float *x, const float *importance, block_q6_k *block)
{
    group groups[GROUPS];
    measure m = measure_block(SUPER_BLOCK, x, importance);
    for (int g = 0; g < GROUPS; g++) {
        groups[g].p.n = PART;
        for (int j = 0; j < PARTS; j++) parts_load(&groups[g].p, j, &m, x, (g * PARTS + j) * PART);
        symmetric_search(&groups[g].p, top, &groups[g].scale);
    }
    choice first = choose(groups, scale_round(first_d(groups), m.unit));
    choice second = choose(groups, scale_round(better_d(&first), m.unit));
    write_block(groups, second.error < first.error ? &second : &first, m.unit, block);
}

void quantize_row_q6_k(int64_t n, const float *x, const float *importance, void *out)
{
    block_q6_k *block = out;
    for (int64_t i = 0; i < n; i += SUPER_BLOCK)
        quantize_block(x + i, importance ? importance + i : NULL, block++);
}

/* quantize_super.c - Q4_K and Q5_K: eight parts of 32 numbers, x ≈ d·scale·q - dmin·min with a scale and a
 * minimum of 6 bits for each part.
 *
 * The search first finds the best scale and minimum of each part. Then it chooses d and dmin such that
 * multiples of them are near these, and chooses the multiples with which the numbers, rounded again for each,
 * lose the least. Finally it fits d and dmin to the result and chooses the multiples once more. */
#include "kernels/quantize_search.h"

#include <string.h>

#include "base/half.h"

/* ---- multiples of d and dmin ---------------------------------------------------------------- */

enum { GROUPS = SUPER_BLOCK / BLOCK / PARTS };

/* Four parts, and their best lines. */
typedef struct group {
    parts p;
    lines real;
    lanes middle; /* the mean code of each part */
} group;

/* d and dmin of a block, the multiples of them, and the error with these. */
typedef struct choice {
    float d, dmin, error;
    lines integer[GROUPS];
} choice;

static lines choice_lines(const choice *c, int g)
{
    return (lines){c->d * c->integer[g].scale, c->dmin * c->integer[g].min};
}

static lanes clamp_integers(lanes v) { return lanes_clamp(v, 0.0f, 63.0f); }

/* The best multiples of d and dmin among those near the best lines of the parts. Scales up to two steps from
 * the nearest are tried. For each, minima are tried up to one step from the one that keeps the line where it
 * was at the part's mean code. The numbers are rounded again for each. Returns the error. */
static float choose_integers(const group *g, float top, float d, float dmin, lines *best)
{
    lanes least = lanes_all(INFINITY), errors;
    lanes nearby = clamp_integers(lanes_nearest(g->real.scale * inverse_or_zero(d)));
    *best = (lines){0};
    for (int step = -2; step <= 2; step++) {
        lanes scale = clamp_integers(nearby + (float)step);
        lanes min = g->real.min + (d * scale - g->real.scale) * g->middle;
        min = clamp_integers(lanes_nearest(min * inverse_or_zero(dmin)));
        for (int min_step = -1; min_step <= 1; min_step++) {
            lines integer = {scale, clamp_integers(min + (float)min_step)};
            lines at = {d * integer.scale, dmin * integer.min};
            lines_errors(&g->p, top, &at, &errors);
            lines_keep_better(&errors, &integer, &least, best);
        }
    }
    return lanes_sum(least);
}

static choice choose(const group *groups, float top, float d, float dmin)
{
    choice c = {.d = d, .dmin = dmin};
    for (int g = 0; g < GROUPS; g++)
        c.error += choose_integers(&groups[g], top, d, dmin, &c.integer[g]);
    return c;
}

/* Chooses d and dmin such that the largest scale and minimum become 63. */
static choice choose_first(const group *groups, float top, float unit)
{
    float scale = 0.0f, min = 0.0f;
    for (int part = 0; part < GROUPS * PARTS; part++) {
        const lines *real = &groups[part / PARTS].real;
        scale = fmaxf(scale, real->scale[part % PARTS]);
        min = fmaxf(min, real->min[part % PARTS]);
    }
    return choose(groups, top, scale_round(scale / 63.0f, unit), scale_round(min / 63.0f, unit));
}

/* Chooses again, with the d and dmin that least squares give for the multiples and codes of *c. */
static choice choose_fitted(const group *groups, float top, float unit, const choice *c)
{
    float aa = 0.0f, ab = 0.0f, bb = 0.0f, ar = 0.0f, br = 0.0f;
    for (int g = 0; g < GROUPS; g++) {
        lines at = choice_lines(c, g);
        line_sums s;
        lines_sum(&groups[g].p, top, &at, &s);
        lanes a = c->integer[g].scale, b = c->integer[g].min;
        aa += lanes_sum(a * a * s.qq);
        ab += lanes_sum(a * b * s.q);
        bb += lanes_sum(b * b * s.w);
        ar += lanes_sum(a * s.qr);
        br += lanes_sum(b * s.r);
    }
    float determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-5f * (aa * bb))) return *c;
    float d = c->d + (bb * ar - ab * br) / determinant;
    float dmin = c->dmin + (ab * ar - aa * br) / determinant;
    if (!(d > 0.0f && dmin >= 0.0f)) return *c;
    return choose(groups, top, scale_round(d, unit), scale_round(dmin, unit));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* A block as it is stored, except that each code has a byte. */
typedef struct super_block {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t q[SUPER_BLOCK];
} super_block;

/* The reverse of block_scale_min. */
static void pack_scales(const choice *c, uint8_t scales[12])
{
    memset(scales, 0, 12);
    for (int part = 0; part < GROUPS * PARTS; part++) {
        const lines *integer = &c->integer[part / PARTS];
        int scale = (int)integer->scale[part % PARTS], min = (int)integer->min[part % PARTS];
        if (part < 4) {
            scales[part] = (uint8_t)scale;
            scales[part + 4] = (uint8_t)min;
        } else {
            scales[part + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
            scales[part - 4] |= (uint8_t)(scale >> 4 << 6);
            scales[part] |= (uint8_t)(min >> 4 << 6);
        }
    }
}

static void load_group(group *g, int first, float top, const measure *m, const float *x)
{
    line_sums s;
    g->p.n = BLOCK;
    for (int j = 0; j < PARTS; j++) parts_load(&g->p, j, m, x, (first + j) * BLOCK);
    lines_search(&g->p, top, 0.0f, &g->real);
    lines_sum(&g->p, top, &g->real, &s);
    g->middle = s.q * lanes_inverse(s.w);
}

static void search_block(const float *x, const float *importance, float top, super_block *out)
{
    group groups[GROUPS];
    measure m = measure_block(SUPER_BLOCK, x, importance);
    for (int g = 0; g < GROUPS; g++) load_group(&groups[g], g * PARTS, top, &m, x);
    choice best = choose_first(groups, top, m.unit);
    choice fitted = choose_fitted(groups, top, m.unit, &best);
    if (fitted.error < best.error) best = fitted;

    out->d = half_to_f16(best.d * m.unit);
    out->dmin = half_to_f16(best.dmin * m.unit);
    pack_scales(&best, out->scales);
    for (int g = 0; g < GROUPS; g++) {
        lines at = choice_lines(&best, g);
        lines_write(&groups[g].p, top, &at, out->q + g * PARTS * BLOCK);
    }
}

static void pack_low(const uint8_t q[SUPER_BLOCK], uint8_t out[128])
{
    for (int pair = 0; pair < 4; pair++)
        for (int i = 0; i < BLOCK; i++) {
            const uint8_t *at = q + pair * 64 + i;
            out[pair * BLOCK + i] = (uint8_t)((at[0] & 15) | (at[BLOCK] & 15) << 4);
        }
}

/* Writes what both types begin with. */
static void pack_head(const super_block *found, uint8_t d[2], uint8_t dmin[2], uint8_t scales[12])
{
    half_store_f16(d, found->d);
    half_store_f16(dmin, found->dmin);
    memcpy(scales, found->scales, sizeof found->scales);
}

void quantize_row_q4_k(int64_t n, const float *x, const float *importance, void *out)
{
    super_block found;
    block_q4_k *block = out;
    for (int64_t i = 0; i < n; i += SUPER_BLOCK, block++) {
        search_block(x + i, importance ? importance + i : NULL, 15.0f, &found);
        pack_head(&found, block->d, block->dmin, block->scales);
        pack_low(found.q, block->q);
    }
}

void quantize_row_q5_k(int64_t n, const float *x, const float *importance, void *out)
{
    super_block found;
    block_q5_k *block = out;
    for (int64_t i = 0; i < n; i += SUPER_BLOCK, block++) {
        search_block(x + i, importance ? importance + i : NULL, 31.0f, &found);
        pack_head(&found, block->d, block->dmin, block->scales);
        pack_low(found.q, block->q);
        memset(block->high, 0, sizeof block->high);
        for (int k = 0; k < SUPER_BLOCK; k++)
            block->high[k % BLOCK] |= (uint8_t)(found.q[k] >> 4 << k / BLOCK);
    }
}

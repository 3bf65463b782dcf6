/* quantize_super.c - Q4_K and Q5_K: eight parts of 32 numbers, x ≈ d·scale·q - dmin·min with a
 * scale and a minimum of 6 bits for each part.
 *
 * First each part gets the scale and minimum that suit it; then d and dmin are chosen so that
 * multiples of them come near, and the multiples so that the numbers, rounded again for each, lose
 * the least; then d and dmin are fitted to what came out, and the multiples chosen once more. */
#include "kernels/quantize_search.h"

#include <string.h>

#include "base/half.h"

/* ---- multiples of d and dmin ---------------------------------------------------------------- */

enum { GROUPS = SUPER_BLOCK / BLOCK / PARTS };

/* A few parts and what suits them. */
typedef struct group {
    parts p;
    lines real;
    lanes middle; /* mean code */
} group;

/* d and dmin of a block, the multiples of them, and how well they do. */
typedef struct choice {
    float d, dmin, error;
    lines integer[GROUPS];
} choice;

static lines choice_lines(const choice *c, int g)
{
    return (lines){c->d * c->integer[g].scale, c->dmin * c->integer[g].min};
}

static lanes clamp_integers(lanes v) { return lanes_clamp(v, 0.0f, 63.0f); }

/* The best multiples of d and dmin among those near what suits the parts: up to two from the
 * nearest scale, and for each up to one from the minimum with which the changed scale turns about
 * the middle of the part. The numbers are rounded again for each. */
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

/* The largest scale and minimum become 63. */
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

/* With the d and dmin that least squares find for the multiples and codes of another choice. */
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

/* A block as it is stored, but for where the bits of its codes lie. */
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

/* What both types begin with, at its places in the block. */
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

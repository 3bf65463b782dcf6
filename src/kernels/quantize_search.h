/* quantize_search.h - private to the quantisers: the search for the scale with which the numbers that share
 * it lose the least.
 *
 * Four parts are searched at the same time. Number i of all four is one vector, so no sum runs across a
 * vector, and the parts do not affect each other. The vector types are those of GCC and Clang. Loops over the
 * parts would not do: compilers unroll them before they could use vectors. Every processor of interest has
 * vectors of four floats. */
#ifndef DSMOE_KERNELS_QUANTIZE_SEARCH_H
#define DSMOE_KERNELS_QUANTIZE_SEARCH_H

#include <math.h>
#include <stdbool.h>

#include "kernels/blocks.h"

enum { PARTS = 4 };

/* A number of each part, and a truth value for each part: all bits set or none. */
typedef float lanes __attribute__((vector_size(PARTS * sizeof(float))));
typedef int32_t lanes_mask __attribute__((vector_size(PARTS * sizeof(int32_t))));

static inline lanes lanes_all(float value) { return (lanes){0} + value; }

static inline lanes lanes_select(lanes_mask mask, lanes yes, lanes no)
{
    return (lanes)(((lanes_mask)yes & mask) | ((lanes_mask)no & ~mask));
}

static inline lanes lanes_clamp(lanes v, float low, float high)
{
    v = lanes_select(v < low, lanes_all(low), v);
    return lanes_select(v > high, lanes_all(high), v);
}

static inline lanes lanes_magnitude(lanes v) { return (lanes)((lanes_mask)v & INT32_MAX); }

static inline float lanes_sum(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/* 0 for a v that is negligible compared with 1, even if its inverse would be finite. */
static inline lanes lanes_inverse(lanes v)
{
    lanes_mask zero = lanes_magnitude(v) < 0x1p-120f;
    return (lanes)((lanes_mask)(1.0f / lanes_select(zero, lanes_all(1.0f), v)) & ~zero);
}

/* The integer nearest to v, ties to even, for |v| < 2^22: floats as large as the constant are integers. A
 * larger v stays large. */
static inline lanes lanes_nearest(lanes v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

static inline float nearest(float v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

static inline float inverse_or_zero(float v) { return fabsf(v) < 0x1p-120f ? 0.0f : 1.0f / v; }

/* ---- parts ---------------------------------------------------------------------------------- */

/* The search minimises Σ w·(x - x̂)². The numbers are in units of their block. */
typedef struct parts {
    int n; /* numbers of a part, at most BLOCK */
    lanes x[BLOCK], w[BLOCK];
} parts;

/* How the numbers of a block are scaled and weighted. The unit is about the largest number, so that no square
 * overflows or vanishes. It is a power of two, so dividing by it is exact. */
typedef struct measure {
    float unit;
    const float *importance; /* NULL: not given, or zero for all these numbers */
    float whole;             /* importances are divided by this, */
    float floor;             /* and this is added, so that each error has some weight */
    float spread;            /* a multiple of the mean square; numbers below its root count alike */
} measure;

measure measure_block(int n, const float *x, const float *importance);

/* Loads the numbers of one part, which begin at `first` in the block x. */
void parts_load(parts *p, int part, const measure *m, const float *x, int first);

/* Rounds a scale to the float16 that a block stores. Both the scale and the result are in units. Rounds to
 * nearest, but up among the smallest float16s, which are so coarse that the largest numbers would be cut off
 * otherwise. A scale that is too large becomes the largest float16. */
float scale_round(float scale, float unit);

/* ---- types without a minimum: x ≈ scale·q for integers -top ≤ q < top ----------------------- */

/* Sums over the numbers of each part, with the residue r = x - scale·q. */
typedef struct symmetric_sums {
    lanes qq, qr, rr; /* Σ w·q², Σ w·q·r, Σ w·r² */
} symmetric_sums;

void symmetric_sum(const parts *p, float top, const lanes *scale, symmetric_sums *sums);

/* The best scale for each part; it may be negative. */
void symmetric_search(const parts *p, float top, lanes *scale);

/* Writes the best q + top for these scales, part by part. */
void symmetric_write(const parts *p, float top, const lanes *scale, uint8_t *q);

/* ---- types with a minimum: x ≈ scale·q - min for integers 0 ≤ q ≤ top ----------------------- */

typedef struct lines {
    lanes scale, min;
} lines;

/* Sums over the numbers of each part, with the residue r = x - (scale·q - min). */
typedef struct line_sums {
    lanes w, q, qq, r, qr, rr; /* Σ w, Σ w·q, Σ w·q², Σ w·r, Σ w·q·r, Σ w·r² */
} line_sums;

void lines_sum(const parts *p, float top, const lines *at, line_sums *sums);

/* The last of these sums alone. */
void lines_errors(const parts *p, float top, const lines *at, lanes *errors);

/* In the parts where the error of the trial is below the least so far, the trial becomes the best. */
void lines_keep_better(const lanes *errors, const lines *trial, lanes *least, lines *best);

/* The best scale and minimum for each part. No minimum is below `least_min`, which may be -INFINITY. */
void lines_search(const parts *p, float top, float least_min, lines *best);

/* Writes the best q for these lines, part by part. */
void lines_write(const parts *p, float top, const lines *at, uint8_t *q);

/* ---- quantize_row for each block type ------------------------------------------------------- */

void quantize_row_q4_0(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q5_0(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q5_1(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q8_0(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q4_k(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q5_k(int64_t n, const float *x, const float *importance, void *out);
void quantize_row_q6_k(int64_t n, const float *x, const float *importance, void *out);

#endif

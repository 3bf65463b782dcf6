/* kernels.h - the table of everything that is written once per instruction set.
 *
 * Kernels are pure functions: no allocation, no I/O, no threads. scalar.c is the specification; every
 * other file is tested against it. gemm.c builds matrix products of any size out of the tiles and
 * never names an instruction set; tile sizes live beside the kernels they belong to.
 *
 * Two tiles, because the two directions of a linear layer want different shapes:
 *   dot tile    y = x·wᵀ, both operands contiguous along the sum: forward. Partial sums run in
 *               `lanes` parallel lanes along a block of the sum and are folded at its end, in an
 *               order that depends on nothing else: a row gives the same bits alone or among
 *               thousands.
 *   outer tile  c = Σ_k a_k ⊗ b_k, operands contiguous across the sum: both products of backward. */
#ifndef DSMOE_KERNELS_KERNELS_H
#define DSMOE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A matrix by rows: row i begins at data + stride * (index ? index[i] : i). The index is how tokens
 * are gathered for an expert without copying them first. */
typedef struct rows {
    const float *data;
    int64_t stride;
    const int32_t *index;
} rows;

static inline const float *rows_at(rows r, int64_t i)
{
    return r.data + r.stride * (r.index ? r.index[i] : i);
}

/* The last rows from row `first` on. */
static inline rows rows_from(rows r, int64_t first)
{
    if (r.index) r.index += first;
    else r.data += r.stride * first;
    return r;
}

/* The same rows from column `first` on. */
static inline rows rows_columns(rows r, int64_t first)
{
    r.data += first;
    return r;
}

enum {
    AHEAD_LINES = 8, /* cache lines that one tile asks for ahead of time */
    AHEAD_LINE = 16, /* floats in one */
};

typedef struct kernels {
    const char *name;

    /* -- dot tile: dot_m rows of x by dot_n rows of w ---------------------------------------- */
    int lanes;        /* floats in one step along the sum */
    int dot_m, dot_n; /* tile size */
    int dot_k;        /* how much of the sum one packed block covers: a multiple of lanes */

    /* Columns [k0, k1) of n rows, `group` rows together: [⌈n/group⌉][steps][group][lanes], with
     * zeros where there is no row or no column. */
    void (*dot_pack)(float *panel, rows src, int64_t n, int group, int64_t k0, int64_t k1);

    /* y[i·ldy + j] = (accumulate ? y : 0) + x panel · w panel over `steps` steps, i < m, j < n.
     * While it computes it asks memory for AHEAD_LINES cache lines at `ahead`, evenly spread, so that
     * what the next block needs arrives without a burst. */
    void (*dot_tile)(int64_t steps, const float *x, const float *w, float *y, int64_t ldy,
                     bool accumulate, int m, int n, const float *ahead);

    /* The same sum in the same order for few rows (m ≤ dot_m), straight from memory: y[i·ldy + j] =
     * x_i · w_j over k columns in blocks of `block`, for n rows of w. */
    void (*dot_direct)(rows x, int m, rows w, int64_t n, int64_t k, int64_t block, float *y,
                       int64_t ldy);

    /* -- outer tile: outer_m by outer_n ------------------------------------------------------- */
    int outer_m, outer_n;

    /* `width` columns of n rows, n being the sum: [⌈width/group⌉][n][group], zeros beyond. */
    void (*outer_pack)(float *panel, rows src, int64_t n, int64_t width, int group);
    /* The transpose of that source: n rows, `width` columns being the sum:
     * [⌈n/group⌉][width][group]. */
    void (*outer_pack_transposed)(float *panel, rows src, int64_t n, int64_t width, int group);

    /* c[i·ldc + j] = (accumulate ? c : 0) + Σ_k a[k][i]·b[k][j], i < m, j < n. `ahead` as above. */
    void (*outer_tile)(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                       bool accumulate, int m, int n, const float *ahead);

    /* -- element by element ------------------------------------------------------------------- */
    /* h = silu(g)·u */
    void (*swiglu)(int64_t n, const float *g, const float *u, float *h);
    /* dh is the gradient by the expert's unweighted hidden row h. Returns Σ h·dh (the gradient of
     * the gate value), and replaces g, u, dh by their successors in the chain: dg, du of weight·dh,
     * and weight·h. */
    float (*swiglu_backward)(int64_t n, float weight, float *g, float *u, float *dh);
    /* y += weight·x */
    void (*axpy)(int64_t n, float weight, const float *x, float *y);
    /* In place; false if any input is NaN or infinite (the output is then undefined). */
    bool (*softmax)(int64_t n, float *x);

    /* -- what the machine can do -------------------------------------------------------------- */
    /* Runs `rounds` rounds of independent multiply-adds on registers; returns how many floating-
     * point operations that was. `sink` keeps the compiler from leaving it out. */
    double (*probe_fma)(int64_t rounds, float *sink);
    /* Reads n floats (a multiple of 64) and returns something that depends on all of them. */
    float (*probe_read)(int64_t n, const float *x);
} kernels;

extern const kernels kernels_scalar;
#if defined(__x86_64__)
extern const kernels kernels_avx2;
#endif

/* The best set this processor runs. */
const kernels *kernels_get(void);
/* All sets this processor runs, weakest first; the count. For tests and benchmarks. */
int kernels_all(const kernels *const **list);

#endif

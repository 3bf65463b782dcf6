/* gemm.h - matrix products of any size out of the kernels' tiles, for one thread.
 *
 * The three products of a linear layer y = x·wᵀ, w [out, in]:
 *   gemm_nt   y  = x·wᵀ     forward
 *   gemm_nn   dx = dy·w     backward to the input
 *   gemm_tn   dw = dyᵀ·x    backward to the weight
 * Threads call them on different outputs; the order of every sum is fixed by the shapes alone. */
#ifndef DSMOE_KERNELS_GEMM_H
#define DSMOE_KERNELS_GEMM_H

#include "kernels/kernels.h"

/* Rows of x (or dy) that one call takes. More rows reuse a packed weight longer; fewer keep the
 * packed rows near. */
enum { GEMM_ROWS = 252 };

/* Up to so many groups of `few` rows, gemm_nt takes weights unpacked. */
enum { GEMM_FEW_GROUPS = 3 };

/* The form that the left operand of gemm_nt has been brought into: it depends on the type of the
 * weights, and is made when the first ones come. */
typedef enum gemm_form {
    GEMM_UNPACKED,
    GEMM_FLOATS,
    GEMM_BLOCKS, /* integers of a block_form: one more than this for each */
} gemm_form;

/* One thread's scratch. `max_k` bounds the length of a row of any operand. */
typedef struct gemm {
    const kernels *kernels;
    float *x_panel; /* packed rows */
    float *w_panel; /* packed block of weights */
    int16_t *words; /* that block in words, and the scales of its columns */
    float *word_scale;
    char *octet; /* one that is not kept */
    rows source; /* what gemm_nt_load took, */
    int64_t m, k;
    const x_home *home; /* where someone else has it in integers, or NULL, */
    int64_t home_row;   /* after so many rows */
    gemm_form form;
    bool
        same_order; /* few rows of floats are added up in the order of many: slower, but a row's bits do
                        not depend on how many come with it. The caller sets it after gemm_init. */
    bool
        few_order; /* the other way round: many rows in the order of few, for a w of few rows, which is then in a cache */
    const float *x; /* and as GEMM_FLOATS: x_panel, or a single row where it lies */
} gemm;

size_t gemm_scratch_size(const kernels *kernels, int64_t max_k);
gemm gemm_init(const kernels *kernels, int64_t max_k, void *scratch);

/* Takes m ≤ GEMM_ROWS rows of k columns as the left operand of the next calls of gemm_nt; x must stay
 * as it is until then. */
void gemm_nt_load(gemm *g, rows x, int64_t m, int64_t k);
/* The same for rows that someone has brought into integers for all tasks of a product: row i is the one
 * numbered index[i] there, or home_row + i where x has no index. */
void gemm_nt_load_made(gemm *g, rows x, const x_home *home, int64_t home_row, int64_t m, int64_t k);
/* y[i·ldy + j] = x_i · w_j for n rows of w. */
void gemm_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);
/* The same added to what is there, for plain types and with same_order. */
void gemm_nt_add(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);

/* c[i·ldc + j] (+)= Σ_k a_i[k]·w_k[j] for m ≤ GEMM_ROWS rows of a, k rows of w, n columns of w. */
void gemm_nn(const gemm *g, rows a, int64_t m, rows w, int64_t k, int64_t n, float *c, int64_t ldc,
             bool accumulate);

/* The same for weights of any type, columns from `column` on, a multiple of GEMM_WIDE: they are widened block by block
 * for all rows of a. Block types end with a whole block; a and they are multiplied in words where the set has that, to
 * a few parts in ten thousand of the sum's size. */
enum { GEMM_WIDE = 256 };
void gemm_nn_matrix(const gemm *g, rows a, int64_t m, matrix w, int64_t column, int64_t k,
                    int64_t n, float *c, int64_t ldc, bool accumulate);

/* c[i·ldc + j] (+)= Σ_r a_r[i]·b_r[j] for k rows of a and b, m columns of a, n columns of b. */
void gemm_tn(const gemm *g, rows a, int64_t m, rows b, int64_t n, int64_t k, float *c, int64_t ldc,
             bool accumulate);

#endif

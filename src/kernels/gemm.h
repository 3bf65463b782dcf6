/* gemm.h - matrix products of any size from the tiles of the kernels, for one thread.
 *
 * The three products of a linear layer y = x·wᵀ, w [out, in]:
 *   gemm_nt   y  = x·wᵀ     forward
 *   gemm_nn   dx = dy·w     backward to the input
 *   gemm_tn   dw = dyᵀ·x    backward to the weight
 * Threads call them for different outputs. The order of every sum depends on the shapes only. */
#ifndef DSMOE_KERNELS_GEMM_H
#define DSMOE_KERNELS_GEMM_H

#include "kernels/kernels.h"

/* The most rows of x (or dy) in one call. With more rows a packed weight is used more often; with fewer the
 * packed rows stay in a cache. */
enum { GEMM_ROWS = 252 };

/* With up to this many groups of `few` rows, gemm_nt does not pack the weights. */
enum { GEMM_FEW_GROUPS = 3 };

/* The form that the left operand of gemm_nt has been converted to. It depends on the type of the weights, so
 * it is made by the first call of gemm_nt. */
typedef enum gemm_form {
    GEMM_UNPACKED,
    GEMM_FLOATS,
    GEMM_BLOCKS, /* integers; GEMM_BLOCKS + f for block_form f */
} gemm_form;

/* One thread's scratch. `max_k` bounds the length of a row of any operand. */
typedef struct gemm {
    const kernels *kernels;
    float *x_panel; /* packed rows */
    float *w_panel; /* packed weights */
    int16_t *words; /* packed weights in words, with the scales of their columns */
    float *word_scale;
    char *octet; /* space for an octet that is not kept */
    rows source; /* the operand of gemm_nt_load */
    int64_t m, k;
    const x_home *home; /* the operand in integers, if it was made for all tasks; or NULL */
    int64_t home_row;   /* index of its first row there */
    gemm_form form;
    /* Adds few rows of floats in the order of many. That is slower, but a row's bits do not depend on the
     * number of rows. The caller sets it after gemm_init. */
    bool same_order;
    /* Adds many rows in the order of few. It is meant for a w of few rows, which then stays in a cache. */
    bool few_order;
    const float *x; /* the operand as GEMM_FLOATS: x_panel, or a single row that is not copied */
} gemm;

size_t gemm_scratch_size(const kernels *kernels, int64_t max_k);
gemm gemm_init(const kernels *kernels, int64_t max_k, void *scratch);

/* Sets m ≤ GEMM_ROWS rows of k columns as the left operand of the next calls of gemm_nt. x must not change
 * until the last of these. */
void gemm_nt_load(gemm *g, rows x, int64_t m, int64_t k);
/* gemm_nt_load for rows that `home` may have in integers. Row i of x is row index[i] there, or home_row + i
 * if x has no index. */
void gemm_nt_load_made(gemm *g, rows x, const x_home *home, int64_t home_row, int64_t m, int64_t k);
/* y[i·ldy + j] = x_i · w_j for n rows of w. */
void gemm_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);
/* gemm_nt that adds to y. Only for plain types and with same_order. */
void gemm_nt_add(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);

/* c[i·ldc + j] (+)= Σ_k a_i[k]·w_k[j] for m ≤ GEMM_ROWS rows of a, k rows of w, n columns of w. */
void gemm_nn(const gemm *g, rows a, int64_t m, rows w, int64_t k, int64_t n, float *c, int64_t ldc,
             bool accumulate);

/* gemm_nn for weights of any type, of which it uses n columns from `column` on; `column` is a multiple of
 * GEMM_WIDE. GEMM_WIDE columns at a time are converted to float32, once for all rows of `a`. For block types,
 * n must be whole blocks. If the kernel set has word_kernels, `a` and block types are multiplied as words
 * instead; the error is a few parts in ten thousand of the sum's size. */
enum { GEMM_WIDE = 256 };
void gemm_nn_matrix(const gemm *g, rows a, int64_t m, matrix w, int64_t column, int64_t k,
                    int64_t n, float *c, int64_t ldc, bool accumulate);

/* c[i·ldc + j] (+)= Σ_r a_r[i]·b_r[j] for k rows of a and b, m columns of a, n columns of b. */
void gemm_tn(const gemm *g, rows a, int64_t m, rows b, int64_t n, int64_t k, float *c, int64_t ldc,
             bool accumulate);

#endif

/* low_rank_backward.h - gradients of low-rank additions.
 *
 * For y = W·x + scale·B·(A·x), these functions compute the gradients of A and B, and the addition's share of
 * the gradient of x. The caller computes W's share.
 *
 *   dT = scale·dY·B,  dX += dT·A,  T = scale·X·Aᵀ,  dB = dYᵀ·T,  dA = dTᵀ·X
 *
 * Products that run together form a list. T is computed again rather than kept, since that costs little: only
 * `rank` numbers for each row. */
#ifndef DSMOE_MOE_LOW_RANK_BACKWARD_H
#define DSMOE_MOE_LOW_RANK_BACKWARD_H

#include "moe/low_rank.h"

/* Where the gradients of a low_rank are written. */
typedef struct low_rank_gradient {
    float *a, *b;
} low_rank_gradient;

/* What training adapts: one adapter, which applies to all rows. */
struct low_rank_training {
    adapter adapter;
    adapter_range range;                /* over all tokens */
    const low_rank_gradient *gradients; /* [adapter.n], by matrix.id */
};

/* The ranges of a training pass; `t` is its memory for T. */
static inline adapter_ranges low_rank_ranges(const low_rank_training *training, float *t)
{
    return (adapter_ranges){
        .list = &training->range, .n = 1, .width = training->adapter.most_rank, .t = t};
}

/* The addition to one product. */
typedef struct low_rank_back {
    low_rank low;
    low_rank_gradient gradient;
    rows x, dy;
    int64_t n_rows, n_in, n_out;
    float *t, *dt; /* [n_rows, rank] */
    float *dx;     /* [n_rows, n_in] */
} low_rank_back;

/* Finds the addition to a matrix and where its gradients go; false if it has none. */
bool low_rank_find(const low_rank_training *training, matrix weight, low_rank_back *back);

/* Floats of t and dt together. */
static inline int64_t low_rank_back_floats(const low_rank_training *training, int64_t n_rows)
{
    return training ? 2 * training->adapter.most_rank * n_rows : 0;
}

/* Call these in this order. All need dy; only the last needs x. Products with the same dx must be consecutive
 * in the list, and so must parts of one matrix: they are added up in that order. */
void low_rank_back_dt(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads);
void low_rank_back_dx(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads);
void low_rank_back_weights(const low_rank_back *list, int64_t n, thread_scratch *threads,
                           int n_threads);

#endif

/* low_rank_backward.h - from the gradient by y = W·x + scale·B·(A·x) to those by A and B, and the addition's share of
 * that by x. W's own share is somebody else's.
 *
 *   dT = scale·dY·B,  dX += dT·A,  T = scale·X·Aᵀ,  dB = dYᵀ·T,  dA = dTᵀ·X
 *
 * Products that run together are a list. T is made again rather than kept: that takes rank numbers of each row of W's
 * thousands. */
#ifndef DSMOE_MOE_LOW_RANK_BACKWARD_H
#define DSMOE_MOE_LOW_RANK_BACKWARD_H

#include "moe/low_rank.h"

/* Gradients of a low_rank, written. */
typedef struct low_rank_gradient {
    float *a, *b;
} low_rank_gradient;

/* What training adapts: all rows meet one adapter. */
struct low_rank_training {
    adapter adapter;
    adapter_range range;                /* over all tokens */
    const low_rank_gradient *gradients; /* [adapter.n], by matrix.id */
};

/* The ranges of a pass of training, with room for T of its own. */
static inline adapter_ranges low_rank_ranges(const low_rank_training *training, float *t)
{
    return (adapter_ranges){
        .list = &training->range, .n = 1, .width = training->adapter.most_rank, .t = t};
}

/* One product. */
typedef struct low_rank_back {
    low_rank low;
    low_rank_gradient gradient;
    rows x, dy;
    int64_t n_rows, n_in, n_out;
    float *t, *dt; /* [n_rows, rank] */
    float *dx;     /* [n_rows, n_in] */
} low_rank_back;

/* The addition of a matrix and where its gradients go; false if it has none. */
bool low_rank_find(const low_rank_training *training, matrix weight, low_rank_back *back);

/* Floats of t and dt together. */
static inline int64_t low_rank_back_floats(const low_rank_training *training, int64_t n_rows)
{
    return training ? 2 * training->adapter.most_rank * n_rows : 0;
}

/* In this order, as soon as dy is there; x is needed by the last alone. Products with the same dx, and parts of one
 * matrix, stand one after the other: they add up in that order. */
void low_rank_back_dt(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads);
void low_rank_back_dx(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads);
void low_rank_back_weights(const low_rank_back *list, int64_t n, thread_scratch *threads,
                           int n_threads);

#endif

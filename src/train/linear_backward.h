/* linear_backward.h - backward of y = x·Wᵀ + b, on several threads. */
#ifndef DSMOE_TRAIN_LINEAR_BACKWARD_H
#define DSMOE_TRAIN_LINEAR_BACKWARD_H

#include "moe/low_rank_backward.h"

/* One of several linear layers over the same input. */
typedef struct linear_gradient {
    matrix weight; /* [n_out, n_in] of any type */
    int64_t n_out;
    const float *dy;          /* [n_rows, n_out] */
    float *d_weight, *d_bias; /* NULL: not wanted, or no bias */
} linear_gradient;

typedef struct linear_backward_job {
    int64_t n_rows, n_in;
    const float *x; /* [n_rows, n_in] */
    const linear_gradient *layers;
    int n_layers;
    float *dx;       /* [n_rows, n_in], written */
    bool accumulate; /* gradients are added to, not written */
    thread_scratch *threads;
    int n_threads;
    const low_rank_training *low_rank; /* NULL: there are no low-rank additions */
    float *t;                          /* if there are: linear_backward_floats */
} linear_backward_job;

enum { LINEAR_BACKWARD_MOST = 4 }; /* layers over the same input */

static inline int64_t linear_backward_floats(const low_rank_training *training, int64_t n_rows)
{
    return LINEAR_BACKWARD_MOST * low_rank_back_floats(training, n_rows);
}

/* dx = Σ dy·W; dW (+)= dyᵀ·x; db (+)= Σ_rows dy. Also adds the part of low-rank additions to dx and writes
 * their gradients. */
void linear_backward(const linear_backward_job *job);

#endif

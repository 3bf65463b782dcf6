/* linear_backward.h - backward of y = x·Wᵀ + b over several threads. */
#ifndef DSMOE_TRAIN_LINEAR_BACKWARD_H
#define DSMOE_TRAIN_LINEAR_BACKWARD_H

#include "moe/moe.h"

/* One of several linear layers over the same input. */
typedef struct linear_gradient {
    matrix weight; /* float32 [n_out, n_in] */
    int64_t n_out;
    const float *dy;          /* [n_rows, n_out] */
    float *d_weight, *d_bias; /* the bias may be NULL */
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
} linear_backward_job;

/* dx = Σ dy·W; dW (+)= dyᵀ·x; db (+)= Σ_rows dy */
void linear_backward(const linear_backward_job *job);

#endif

/* norm.h - RMS norms of many rows, forward and backward. */
#ifndef DSMOE_TRAIN_NORM_H
#define DSMOE_TRAIN_NORM_H

#include "base/arena.h"
#include "kernels/kernels.h"

typedef struct norm_rows {
    const kernels *kernels;
    int64_t n_rows, width;
    float eps;
    float *parts; /* [stretches of rows, width] parts of a weight's gradient */
    int n_threads;
} norm_rows;

norm_rows norm_place(arena *a, const kernels *kernels, int64_t n_rows, int64_t width, float eps,
                     int n_threads);

/* y = norm(x) */
void norm_forward(const norm_rows *norm, const float *x, const float *weight, float *y);
/* sum = x + more; y = norm(sum) */
void norm_add_forward(const norm_rows *norm, const float *x, const float *more, float *sum,
                      const float *weight, float *y);
/* Adds to dx; writes d_weight. */
void norm_backward(const norm_rows *norm, const float *x, const float *weight, const float *dy,
                   float *dx, float *d_weight);

#endif

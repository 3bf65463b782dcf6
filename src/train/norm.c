/* norm.c - RMS norms of many rows. The gradient of a norm's weight is a sum over all rows. Each stretch of
 * rows has its own sum, and these are added in order, whichever thread computed them. */
#include "train/norm.h"

#include <string.h>

#include "base/threads.h"

enum { STRETCH = 64 }; /* rows of a task */

static int64_t stretches(int64_t n_rows) { return (n_rows + STRETCH - 1) / STRETCH; }

norm_rows norm_place(arena *a, const kernels *kn, int64_t n_rows, int64_t width, float eps,
                     int n_threads)
{
    return (norm_rows){.kernels = kn,
                       .n_rows = n_rows,
                       .width = width,
                       .eps = eps,
                       .parts = arena_take(a, stretches(n_rows) * width, sizeof(float)),
                       .n_threads = n_threads};
}

typedef struct norm_job {
    const norm_rows *norm;
    const float *x, *more, *weight, *dy;
    float *sum, *y, *dx;
} norm_job;

static int64_t stretch_end(const norm_rows *n, int64_t task)
{
    return (task + 1) * STRETCH < n->n_rows ? (task + 1) * STRETCH : n->n_rows;
}

static void forward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const norm_job *j = context;
    const norm_rows *n = j->norm;
    for (int64_t r = task * STRETCH; r < stretch_end(n, task); r++) {
        const float *x = j->x + r * n->width;
        if (j->more) {
            float *sum = j->sum + r * n->width;
            memcpy(sum, x, (size_t)n->width * sizeof *sum);
            n->kernels->axpy(n->width, 1.0f, j->more + r * n->width, sum);
            x = sum;
        }
        n->kernels->rms_norm(n->width, x, j->weight, n->eps, j->y + r * n->width);
    }
}

void norm_forward(const norm_rows *norm, const float *x, const float *weight, float *y)
{
    norm_job job = {.norm = norm, .x = x, .weight = weight, .y = y};
    threads_for(norm->n_threads, stretches(norm->n_rows), forward_task, &job);
}

void norm_add_forward(const norm_rows *norm, const float *x, const float *more, float *sum,
                      const float *weight, float *y)
{
    norm_job job = {.norm = norm, .x = x, .more = more, .sum = sum, .weight = weight, .y = y};
    threads_for(norm->n_threads, stretches(norm->n_rows), forward_task, &job);
}

static void backward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const norm_job *j = context;
    const norm_rows *n = j->norm;
    float *part = n->parts + task * n->width;
    memset(part, 0, (size_t)n->width * sizeof *part);
    for (int64_t r = task * STRETCH; r < stretch_end(n, task); r++) {
        int64_t at = r * n->width;
        n->kernels->rms_norm_backward(n->width, j->x + at, j->weight, n->eps, j->dy + at,
                                      j->dx + at, part);
    }
}

void norm_backward(const norm_rows *norm, const float *x, const float *weight, const float *dy,
                   float *dx, float *d_weight)
{
    norm_job job = {.norm = norm, .x = x, .weight = weight, .dy = dy, .dx = dx};
    threads_for(norm->n_threads, stretches(norm->n_rows), backward_task, &job);
    if (!d_weight) return;
    memset(d_weight, 0, (size_t)norm->width * sizeof *d_weight);
    for (int64_t i = 0; i < stretches(norm->n_rows); i++)
        norm->kernels->axpy(norm->width, 1.0f, norm->parts + i * norm->width, d_weight);
}

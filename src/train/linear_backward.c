/* linear_backward.c - products cut into tasks that write different outputs: rows of dx, and rows of
 * the weights' gradients, whose sums over all tokens are never cut. */
#include "train/linear_backward.h"

#include <string.h>

#include "base/threads.h"

enum {
    MANY_OUT = 1024, /* from so many outputs on */
    MANY_PART = 384, /* a task takes so many rows of the gradient, */
    FEW_PART = 128,  /* and below so few, so that there is work for everybody */
    ROWS_ALONE = 64, /* up to so many rows of dx one task takes */
};

/* Blocks of rows in an even number, about equal. */
static int64_t row_blocks(int64_t n_rows)
{
    return n_rows <= ROWS_ALONE ? 1 : 2 * moe_parts(n_rows, 2 * GEMM_ROWS);
}

static void d_input_task(void *context, int64_t task, int thread)
{
    const linear_backward_job *j = context;
    int64_t n = row_blocks(j->n_rows);
    int64_t first = j->n_rows * task / n, end = j->n_rows * (task + 1) / n;
    for (int i = 0; i < j->n_layers; i++) {
        const linear_gradient *l = &j->layers[i];
        rows dy = {l->dy + first * l->n_out, l->n_out, NULL};
        gemm_nn(&j->threads[thread].gemm, dy, end - first, (rows){l->weight.data, j->n_in, NULL},
                l->n_out, j->n_in, j->dx + first * j->n_in, j->n_in, i > 0);
    }
}

static int64_t part_of(const linear_gradient *l)
{
    return l->n_out >= MANY_OUT ? MANY_PART : FEW_PART;
}

static void d_bias(const linear_backward_job *j, const linear_gradient *l, int64_t first, int64_t n)
{
    if (!j->accumulate) memset(l->d_bias + first, 0, (size_t)n * sizeof *l->d_bias);
    for (int64_t r = 0; r < j->n_rows; r++)
        for (int64_t i = first; i < first + n; i++) l->d_bias[i] += l->dy[r * l->n_out + i];
}

static void d_weight_task(void *context, int64_t task, int thread)
{
    const linear_backward_job *j = context;
    const linear_gradient *l = j->layers;
    for (; task >= moe_parts(l->n_out, part_of(l)); l++) task -= moe_parts(l->n_out, part_of(l));
    int64_t first = task * part_of(l), n = moe_min(part_of(l), l->n_out - first);
    gemm_tn(&j->threads[thread].gemm, (rows){l->dy + first, l->n_out, NULL}, n,
            (rows){j->x, j->n_in, NULL}, j->n_in, j->n_rows, l->d_weight + first * j->n_in, j->n_in,
            j->accumulate);
    if (l->d_bias) d_bias(j, l, first, n);
}

void linear_backward(const linear_backward_job *job)
{
    int64_t n_tasks = 0;
    for (int i = 0; i < job->n_layers; i++)
        n_tasks += moe_parts(job->layers[i].n_out, part_of(&job->layers[i]));
    threads_for(job->n_threads, row_blocks(job->n_rows), d_input_task, (void *)job);
    threads_for(job->n_threads, n_tasks, d_weight_task, (void *)job);
}

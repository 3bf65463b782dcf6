/* linear_backward.c - products cut into tasks that write different outputs: rows and columns of dx, and
 * rows of the weights' gradients, whose sums over all tokens are never cut. */
#include "train/linear_backward.h"

#include <assert.h>
#include <string.h>

#include "base/threads.h"

enum {
    MANY_OUT = 1024, /* from this many outputs on, a layer is large */
    MANY_PART = 384, /* rows of the gradient per task, for large layers */
    FEW_PART = 128,  /* for others: fewer, so that all threads have work */
    ROWS_ALONE = 64, /* up to this many rows of dx are one task's */
    DX_PART = 1024,  /* columns of dx per task, at most */
};

/* Every row range packs the weights again. So if there are enough columns for all threads, rows are cut as
 * little as possible, otherwise into an even number of about equal ranges. */
static int64_t row_blocks(const linear_backward_job *j)
{
    if (j->n_in > DX_PART) return moe_parts(j->n_rows, GEMM_ROWS);
    return j->n_rows <= ROWS_ALONE ? 1 : 2 * moe_parts(j->n_rows, 2 * GEMM_ROWS);
}

static void d_input_task(void *context, int64_t task, int thread)
{
    const linear_backward_job *j = context;
    int64_t n = row_blocks(j), parts = moe_parts(j->n_in, DX_PART), block = task / parts;
    int64_t first = j->n_rows * block / n, end = j->n_rows * (block + 1) / n;
    int64_t column = task % parts * DX_PART, columns = moe_min(DX_PART, j->n_in - column);
    for (int i = 0; i < j->n_layers; i++) {
        const linear_gradient *l = &j->layers[i];
        rows dy = {l->dy + first * l->n_out, l->n_out, NULL};
        gemm_nn_matrix(&j->threads[thread].gemm, dy, end - first, l->weight, column, l->n_out,
                       columns, j->dx + first * j->n_in + column, j->n_in, i > 0);
    }
}

static int64_t part_of(const linear_gradient *l)
{
    return l->n_out >= MANY_OUT ? MANY_PART : FEW_PART;
}

/* Tasks for the gradients of a layer. */
static int64_t n_parts(const linear_gradient *l)
{
    return l->d_weight || l->d_bias ? moe_parts(l->n_out, part_of(l)) : 0;
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
    for (; task >= n_parts(l); l++) task -= n_parts(l);
    int64_t first = task * part_of(l), n = moe_min(part_of(l), l->n_out - first);
    if (l->d_weight)
        gemm_tn(&j->threads[thread].gemm, (rows){l->dy + first, l->n_out, NULL}, n,
                (rows){j->x, j->n_in, NULL}, j->n_in, j->n_rows, l->d_weight + first * j->n_in,
                j->n_in, j->accumulate);
    if (l->d_bias) d_bias(j, l, first, n);
}

/* The low-rank additions of the layers. */
static void backward_low_rank(const linear_backward_job *j)
{
    low_rank_back list[LINEAR_BACKWARD_MOST];
    int64_t n = 0;
    float *t = j->t;
    for (int i = 0; i < j->n_layers; i++) {
        const linear_gradient *l = &j->layers[i];
        list[n] = (low_rank_back){.x = {j->x, j->n_in, NULL},
                                  .dy = {l->dy, l->n_out, NULL},
                                  .n_rows = j->n_rows,
                                  .n_in = j->n_in,
                                  .n_out = l->n_out,
                                  .dx = j->dx};
        if (!low_rank_find(j->low_rank, l->weight, &list[n])) continue;
        list[n].t = t;
        list[n].dt = t + j->n_rows * list[n].low.rank;
        t = list[n].dt + j->n_rows * list[n].low.rank;
        n++;
    }
    low_rank_back_dt(list, n, j->threads, j->n_threads);
    low_rank_back_dx(list, n, j->threads, j->n_threads);
    low_rank_back_weights(list, n, j->threads, j->n_threads);
}

void linear_backward(const linear_backward_job *job)
{
    int64_t n_tasks = 0;
    for (int i = 0; i < job->n_layers; i++) n_tasks += n_parts(&job->layers[i]);
    assert(job->n_layers <= LINEAR_BACKWARD_MOST);
    threads_for(job->n_threads, row_blocks(job) * moe_parts(job->n_in, DX_PART), d_input_task,
                (void *)job);
    threads_for(job->n_threads, n_tasks, d_weight_task, (void *)job);
    if (job->low_rank) backward_low_rank(job);
}

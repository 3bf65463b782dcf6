/* linear.c - cuts products into tasks: (some rows, some of the output columns). */
#include "model/linear.h"

#include <assert.h>

#include "base/threads.h"
#include "moe/ints.h"
#include "moe/low_rank.h"
#include "moe/octets.h"

typedef struct linear_job {
    const product *products;
    int n_products;
    cut_product cuts[LINEAR_MOST];
    x_home homes[LINEAR_MOST]; /* x as integers; products with the same x share the first one's */
    const x_home *home[LINEAR_MOST];
    const float *t[LINEAR_MOST]; /* of low-rank additions; NULL: there are none */
    low_rank_work low;
    thread_scratch *threads;
} linear_job;

static void linear_task(void *context, int64_t task, int thread)
{
    const linear_job *job = context;
    cut_task t = cut_task_at(job->cuts, job->n_products, task);
    const product *p = &job->products[t.item];
    float *y = p->y + t.row * p->n_out + t.column;
    thread_scratch *s = &job->threads[thread];
    low_rank_part low = {.work = &job->low,
                         .weight = matrix_from(p->weight, t.column),
                         .t = job->t[t.item],
                         .row = t.row,
                         .n_rows = t.n_rows,
                         .n_columns = t.n_columns};
    low_rank_ask(s, &low);
    gemm_nt_load_made(&s->gemm, rows_from(p->x, t.row), job->home[t.item], t.row, t.n_rows,
                      p->n_in);
    gemm_nt(&s->gemm, low.weight, t.n_columns, y, p->n_out);
    low_rank_add(s, &low, y, p->n_out);
    for (int64_t r = 0; p->bias && r < t.n_rows; r++)
        for (int64_t j = 0; j < t.n_columns; j++) y[r * p->n_out + j] += p->bias[t.column + j];
}

int64_t linear_cut(const product *products, int n_products, int n_threads, cut_product *cuts)
{
    for (int i = 0; i < n_products; i++)
        cuts[i] = (cut_product){.n_rows = products[i].n_rows,
                                .n_columns = products[i].n_out,
                                .k = products[i].n_in,
                                .type = products[i].weight.type};
    return cut_tasks(cuts, n_products, n_threads);
}

static void make_octets(const linear_job *job, int n_threads)
{
    octet_work octets = octets_begin(job->threads->gemm.kernels, n_threads);
    for (int i = 0; i < job->n_products; i++) octets_want(&octets, job->products[i].weight);
    octets_end(&octets);
}

static bool same_x(const product *a, const product *b)
{
    return a->x.data == b->x.data && a->x.stride == b->x.stride && a->x.index == b->x.index &&
           a->n_rows == b->n_rows && a->n_in == b->n_in;
}

static void make_x(linear_job *job, int n_threads)
{
    int_work ints = ints_begin(job->threads, n_threads);
    for (int i = 0; i < job->n_products; i++) {
        const product *p = &job->products[i];
        int first = 0;
        while (!same_x(&job->products[first], p)) first++;
        job->home[i] = &job->homes[first];
        ints_want(&ints, &job->homes[first], p->x, p->n_rows, p->n_in, p->weight);
    }
    ints_end(&ints);
}

static void want_t(linear_job *job, int n_threads)
{
    low_rank_begin(&job->low, job->threads, n_threads);
    for (int i = 0; i < job->n_products; i++) {
        const product *p = &job->products[i];
        job->t[i] = low_rank_want(&job->low, p->weight, p->x, p->n_rows, p->n_in, NULL);
    }
}

void linear_run(const product *products, int n_products, thread_scratch *threads, int n_threads)
{
    linear_job job = {.products = products, .n_products = n_products, .threads = threads};
    assert(n_products <= LINEAR_MOST);
    make_octets(&job, n_threads);
    make_x(&job, n_threads);
    want_t(&job, n_threads);
    low_rank_run(&job.low, linear_cut(products, n_products, n_threads, job.cuts), linear_task,
                 &job);
}

void linear_show(const product *products, int n_products, const input_watch *watch)
{
    for (int i = 0; watch && i < n_products; i++)
        watch->see(watch->context, products[i].weight, products[i].x, products[i].n_rows,
                   products[i].n_in);
}

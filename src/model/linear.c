/* linear.c - products cut into tasks: (block of rows, part of the output columns). */
#include "model/linear.h"

#include "base/threads.h"
#include "moe/octets.h"

enum { FEW_ROWS = 64, TASKS_PER_THREAD = 32 };

typedef struct linear_job {
    const product *products;
    thread_scratch *threads;
    int n_threads;
} linear_job;

/* Output columns of a task. For few rows a task first brings x into the form that products want, which
 * a long head should not repeat for every few columns: it is cut by the number of threads. */
static int64_t part_of(const linear_job *job, const product *p)
{
    if (p->n_rows > FEW_ROWS) return MOE_PART;
    int64_t n_parts = (int64_t)TASKS_PER_THREAD * job->n_threads;
    return moe_parts(moe_parts(p->n_out, MOE_SMALL_PART), n_parts) * MOE_SMALL_PART;
}

static int64_t task_count(const linear_job *job, const product *p)
{
    return moe_parts(p->n_rows, GEMM_ROWS) * moe_parts(p->n_out, part_of(job, p));
}

static void linear_task(void *context, int64_t task, int thread)
{
    const linear_job *job = context;
    const product *p = job->products;
    for (; task >= task_count(job, p); p++) task -= task_count(job, p);
    int64_t part = part_of(job, p), n_blocks = moe_parts(p->n_rows, GEMM_ROWS);
    int64_t block = task % n_blocks, column = task / n_blocks * part;
    int64_t first = p->n_rows * block / n_blocks, end = p->n_rows * (block + 1) / n_blocks;
    int64_t n = moe_min(part, p->n_out - column);
    float *y = p->y + first * p->n_out + column;
    gemm *g = &job->threads[thread].gemm;
    gemm_nt_load_again(g, rows_from(p->x, first), end - first, p->n_in);
    gemm_nt(g, matrix_from(p->weight, column), n, y, p->n_out);
    for (int64_t r = 0; p->bias && r < end - first; r++)
        for (int64_t j = 0; j < n; j++) y[r * p->n_out + j] += p->bias[column + j];
}

void linear_run(const product *products, int n_products, thread_scratch *threads, int n_threads)
{
    linear_job job = {products, threads, n_threads};
    int64_t n_tasks = 0;
    octet_work octets = octets_begin(threads->gemm.kernels, n_threads);
    for (int i = 0; i < n_products; i++) {
        octets_want(&octets, products[i].weight);
        n_tasks += task_count(&job, &products[i]);
    }
    octets_end(&octets);
    scratch_forget(threads, n_threads);
    threads_for(n_threads, n_tasks, linear_task, &job);
}

void linear_show(const product *products, int n_products, const input_watch *watch)
{
    for (int i = 0; watch && i < n_products; i++)
        watch->see(watch->context, products[i].weight, products[i].x, products[i].n_rows,
                   products[i].n_in);
}

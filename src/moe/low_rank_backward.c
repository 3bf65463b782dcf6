/* low_rank_backward.c - gradients of low-rank additions. A task is some rows of a product. Gradients of A and
 * B are sums over all rows, which are never cut: there a task is the A or the B of a product. */
#include "moe/low_rank_backward.h"

#include "base/threads.h"

bool low_rank_find(const low_rank_training *training, matrix weight, low_rank_back *back)
{
    if (!training || weight.id <= 0 || weight.id >= training->adapter.n) return false;
    low_rank low = training->adapter.of[weight.id];
    if (low.rank == 0) return false;
    low_rank_gradient gradient = training->gradients[weight.id];
    low.b += weight.home_row * low.rank; /* for a part of a matrix, such as kv_a_proj */
    gradient.b += weight.home_row * low.rank;
    back->low = low;
    back->gradient = gradient;
    return true;
}

typedef struct back_job {
    const low_rank_back *list;
    int64_t n;
    int64_t n_blocks; /* GEMM_ROWS rows each, of the longest product */
    thread_scratch *threads;
} back_job;

static int64_t longest(const low_rank_back *list, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        if (list[i].n_rows > most) most = list[i].n_rows;
    return most;
}

static void run(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads,
                threads_task_fn *task)
{
    back_job job = {list, n, moe_parts(longest(list, n), GEMM_ROWS), threads};
    threads_for(n_threads, n * job.n_blocks, task, &job);
}

/* Some rows of a product; false if it has none there. */
typedef struct back_piece {
    const low_rank_back *of;
    int64_t row, n_rows;
} back_piece;

static bool piece_at(const back_job *j, int64_t task, back_piece *p)
{
    p->of = &j->list[task / j->n_blocks];
    p->row = task % j->n_blocks * GEMM_ROWS;
    p->n_rows = moe_min(GEMM_ROWS, p->of->n_rows - p->row);
    return p->n_rows > 0;
}

static void dt_task(void *context, int64_t task, int thread)
{
    const back_job *j = context;
    back_piece p;
    if (!piece_at(j, task, &p)) return;
    const gemm *g = &j->threads[thread].gemm;
    const low_rank *low = &p.of->low;
    float *dt = p.of->dt + p.row * low->rank;
    gemm_nn(g, rows_from(p.of->dy, p.row), p.n_rows, (rows){low->b, low->rank, NULL}, p.of->n_out,
            low->rank, dt, low->rank, false);
    g->kernels->scale(p.n_rows * low->rank, low->scale, dt);
}

/* A product without rows does not count: its dx may be that of the next product. */
static bool adds_to_same(const low_rank_back *a, const low_rank_back *b)
{
    return a->dx == b->dx && a->n_rows > 0 && b->n_rows > 0;
}

/* All products that add to the same dx, in their order. */
static void dx_task(void *context, int64_t task, int thread)
{
    const back_job *j = context;
    const low_rank_back *end = j->list + j->n;
    back_piece p;
    if (!piece_at(j, task, &p) || (p.of > j->list && adds_to_same(p.of - 1, p.of))) return;
    for (const low_rank_back *of = p.of; of < end && adds_to_same(of, p.of); of++)
        gemm_nn(&j->threads[thread].gemm, (rows){of->dt + p.row * of->low.rank, of->low.rank, NULL},
                p.n_rows, (rows){of->low.a, of->n_in, NULL}, of->low.rank, of->n_in,
                of->dx + p.row * of->n_in, of->n_in, true);
}

static void t_task(void *context, int64_t task, int thread)
{
    const back_job *j = context;
    back_piece p;
    if (!piece_at(j, task, &p)) return;
    gemm g = j->threads[thread].gemm;
    const low_rank *low = &p.of->low;
    float *t = p.of->t + p.row * low->rank;
    gemm_nt_load(&g, rows_from(p.of->x, p.row), p.n_rows, p.of->n_in);
    gemm_nt(&g, matrix_f32(low->a, p.of->n_in), low->rank, t, low->rank);
    g.kernels->scale(p.n_rows * low->rank, low->scale, t);
}

static void weight_task(void *context, int64_t task, int thread)
{
    const back_job *j = context;
    const low_rank_back *of = &j->list[task / 2];
    const gemm *g = &j->threads[thread].gemm;
    int64_t rank = of->low.rank;
    if (task % 2) {
        gemm_tn(g, of->dy, of->n_out, (rows){of->t, rank, NULL}, rank, of->n_rows, of->gradient.b,
                rank, false);
        return;
    }
    /* The gradient of A is a sum over the parts of one matrix. */
    const float *a = of->gradient.a;
    if (of > j->list && of[-1].gradient.a == a) return;
    for (bool add = false; of < j->list + j->n && of->gradient.a == a; of++, add = true)
        gemm_tn(g, (rows){of->dt, rank, NULL}, rank, of->x, of->n_in, of->n_rows, of->gradient.a,
                of->n_in, add);
}

void low_rank_back_dt(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads)
{
    run(list, n, threads, n_threads, dt_task);
}

void low_rank_back_dx(const low_rank_back *list, int64_t n, thread_scratch *threads, int n_threads)
{
    run(list, n, threads, n_threads, dx_task);
}

void low_rank_back_weights(const low_rank_back *list, int64_t n, thread_scratch *threads,
                           int n_threads)
{
    run(list, n, threads, n_threads, t_task);
    back_job job = {list, n, 0, threads};
    threads_for(n_threads, 2 * n, weight_task, &job);
}

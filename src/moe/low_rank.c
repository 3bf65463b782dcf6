/* low_rank.c - low-rank additions to the products of a pass. */
#include "moe/low_rank.h"

#include <assert.h>

/* ---- which adapters apply to a row ----------------------------------------------------------- */

/* The addition of a range to a matrix, or NULL. */
static const low_rank *addition(const adapter_range *range, matrix weight)
{
    const adapter *a = range->adapter;
    if (weight.id <= 0 || weight.id >= a->n || a->of[weight.id].rank == 0) return NULL;
    return &a->of[weight.id];
}

/* The first of rows [row, end) whose token is `wanted` or later. */
static int64_t first_row(const int32_t *token, int64_t row, int64_t end, int64_t wanted)
{
    if (!token) return wanted < row ? row : moe_min(wanted, end);
    while (row < end && token[row] < wanted) row++;
    return row;
}

/* Goes through the ranges, with the rows of a part that are in each. */
typedef struct range_walk {
    const adapter_ranges *ranges;
    const adapter_range *range;
    matrix weight;
    const int32_t *token;
    int64_t row, end; /* rows of the part */
    int64_t column;   /* where the range's columns of T begin */
    const low_rank *low;
    int64_t first, n_rows; /* rows of the part that are in the range */
} range_walk;

static range_walk walk_begin(const adapter_ranges *ranges, matrix weight, const int32_t *token,
                             int64_t row, int64_t n_rows)
{
    return (range_walk){
        .ranges = ranges, .weight = weight, .token = token, .row = row, .end = row + n_rows};
}

/* Ranges with the same tokens have columns of T next to each other. */
static bool walk_next(range_walk *w)
{
    const adapter_ranges *all = w->ranges;
    for (;;) {
        const adapter_range *last = w->range;
        w->range = last ? last + 1 : all->list;
        if (w->range >= all->list + all->n) return false;
        bool same = last && last->first == w->range->first;
        w->column = same ? w->column + last->adapter->most_rank : 0;
        assert(w->column + w->range->adapter->most_rank <= all->width);
        w->low = addition(w->range, w->weight);
        if (!w->low) continue;
        w->first = first_row(w->token, w->row, w->end, w->range->first - all->first);
        w->n_rows = first_row(w->token, w->first, w->end, w->range->end - all->first) - w->first;
        if (w->n_rows > 0) return true;
    }
}

/* A gemm that adds in the order of many rows: for Y, which has many columns. */
static gemm ordered(const thread_scratch *thread)
{
    gemm g = thread->gemm;
    g.same_order = true;
    return g;
}

/* ---- T = scale·X·Aᵀ -------------------------------------------------------------------------- */

enum {
    T_ROWS = 24, /* rows of X in a task; A has few rows, so there is little to gain from more */
    T_ALONE = 4, /* with up to this many rows of X, a task makes only */
    T_PART = 16, /* columns of T, so that several threads share the reading of A */
};

/* Into how many tasks T_ROWS rows are cut along the columns of T. */
static int64_t parts_of_rank(const adapter_ranges *all, int64_t n_rows)
{
    return n_rows <= T_ALONE ? moe_parts(all->width, T_PART) : 1;
}

/* A gemm that adds in the order of few rows: for T, which has few columns. */
static gemm few_ordered(const thread_scratch *thread)
{
    gemm g = thread->gemm;
    g.few_order = true;
    return g;
}

static matrix a_of(const low_rank *low, int64_t n_in)
{
    return (matrix){.data = low->a, .stride = dtype_bytes(low->a_type, n_in), .type = low->a_type};
}

static void t_task(void *context, int64_t task, int thread)
{
    const low_rank_work *work = context;
    const struct low_rank_item *item = work->items;
    while (item + 1 < work->items + work->n && task >= item[1].first_task) item++;
    const adapter_ranges *all = work->threads->adapters;
    int64_t n_parts = parts_of_rank(all, item->n_rows), index = task - item->first_task;
    int64_t row = index / n_parts * T_ROWS, part = index % n_parts;
    gemm g = few_ordered(&work->threads[thread]);
    range_walk w =
        walk_begin(all, item->weight, item->token, row, moe_min(T_ROWS, item->n_rows - row));
    while (walk_next(&w)) {
        int64_t first = n_parts > 1 ? part * T_PART : 0;
        int64_t n = n_parts > 1 ? moe_min(T_PART, w.low->rank - first) : w.low->rank;
        float *t = item->t + w.first * all->width + w.column + first;
        if (n <= 0) continue;
        matrix a = matrix_from(a_of(w.low, item->k), first);
        gemm_nt_load(&g, rows_from(item->x, w.first), w.n_rows, item->k);
        gemm_nt(&g, a, n, t, all->width);
        for (int64_t r = 0; r < w.n_rows; r++)
            g.kernels->scale(n, w.range->scale * w.low->scale, t + r * all->width);
    }
}

void low_rank_begin(low_rank_work *work, thread_scratch *threads, int n_threads)
{
    work->threads = threads;
    work->n_threads = n_threads;
    work->at = threads->adapters ? threads->adapters->t : NULL;
    work->n = 0;
}

/* Counts the tasks of the batch. */
static void cut_batch(low_rank_work *work)
{
    work->n_tasks = 0;
    for (int i = 0; i < work->n; i++) {
        work->items[i].first_task = work->n_tasks;
        work->n_tasks += moe_parts(work->items[i].n_rows, T_ROWS) *
                         parts_of_rank(work->threads->adapters, work->items[i].n_rows);
    }
    atomic_init(&work->n_made, 0);
}

float *low_rank_want(low_rank_work *work, matrix weight, rows x, int64_t n_rows, int64_t k,
                     const int32_t *token)
{
    const adapter_ranges *all = work->threads->adapters;
    if (!all) return NULL;
    range_walk w = walk_begin(all, weight, token, 0, n_rows);
    if (!walk_next(&w)) return NULL;
    if (work->n == LOW_RANK_BATCH) { /* a full batch is run by itself */
        cut_batch(work);
        threads_for(work->n_threads, work->n_tasks, t_task, work);
        work->n = 0;
    }
    float *t = work->at;
    work->items[work->n++] = (struct low_rank_item){
        .weight = weight, .x = x, .n_rows = n_rows, .k = k, .token = token, .t = t};
    work->at += low_rank_floats(all, n_rows);
    return t;
}

static void any_task(void *context, int64_t task, int thread)
{
    low_rank_work *work = context;
    if (task >= work->n_tasks) {
        work->task(work->context, task - work->n_tasks, thread);
        return;
    }
    t_task(work, task, thread);
    atomic_fetch_add_explicit(&work->n_made, 1, memory_order_release);
}

void low_rank_run(low_rank_work *work, int64_t n_tasks, threads_task_fn *task, void *context)
{
    cut_batch(work);
    work->task = task;
    work->context = context;
    threads_for(work->n_threads, work->n_tasks + n_tasks, any_task, work);
}

/* ---- Y += T·Bᵀ ------------------------------------------------------------------------------- */

/* A task's part of B is too short for the processor's own prefetching to help, so all of it is prefetched. */
static void ask(const low_rank *low, int64_t column, int64_t n_columns)
{
    int64_t size = dtype_bytes(low->panels_type, low->rank * PANEL_COLUMNS);
    const char *at = low->panels, *end = at + moe_parts(column + n_columns, PANEL_COLUMNS) * size;
    at += column / PANEL_COLUMNS * size;
    for (; at < end; at += CACHE_LINE) __builtin_prefetch(at, 0, 2);
}

void low_rank_ask(const thread_scratch *thread, const low_rank_part *part)
{
    if (!part->t) return;
    range_walk w = walk_begin(thread->adapters, part->weight, part->token, part->row, part->n_rows);
    while (walk_next(&w))
        if (w.low->panels) ask(w.low, part->weight.home_row, part->n_columns);
}

void low_rank_add(const thread_scratch *thread, const low_rank_part *part, float *y, int64_t ldy)
{
    if (!part->t) return;
    const adapter_ranges *all = thread->adapters;
    gemm g = ordered(thread);
    threads_wait_for(&part->work->n_made, part->work->n_tasks);
    range_walk w = walk_begin(all, part->weight, part->token, part->row, part->n_rows);
    while (walk_next(&w)) {
        rows t = {part->t + w.first * all->width + w.column, all->width, NULL};
        float *to = y + (w.first - part->row) * ldy;
        int64_t first = part->weight.home_row, rank = w.low->rank;
        if (w.low->panels) {
            g.kernels->dtypes[w.low->panels_type].add_panels(
                w.n_rows, t.data, t.stride, rank, w.low->panels, first, part->n_columns, to, ldy);
            continue;
        }
        gemm_nt_load(&g, t, w.n_rows, rank);
        gemm_nt_add(&g, matrix_f32(w.low->b + first * rank, rank), part->n_columns, to, ldy);
    }
}

void scratch_adapt(thread_scratch *threads, int n_threads, const adapter_ranges *adapters)
{
    for (int i = 0; i < n_threads; i++) threads[i].adapters = adapters;
}

/* low_rank.c - low-rank additions to the products of a pass. */
#include "moe/low_rank.h"

#include <assert.h>

#include "base/threads.h"

/* ---- which rows meet what -------------------------------------------------------------------- */

/* The addition of a range to a matrix, or NULL. */
static const low_rank *addition(const adapter_range *range, matrix weight)
{
    const adapter *a = range->adapter;
    if (weight.id <= 0 || weight.id >= a->n || a->of[weight.id].rank == 0) return NULL;
    return &a->of[weight.id];
}

/* The first of rows [row, end) whose token is not before `wanted`. */
static int64_t first_row(const int32_t *token, int64_t row, int64_t end, int64_t wanted)
{
    if (!token) return wanted < row ? row : moe_min(wanted, end);
    while (row < end && token[row] < wanted) row++;
    return row;
}

/* One range after the other, with the rows of a part that it has. */
typedef struct range_walk {
    const adapter_ranges *ranges;
    const adapter_range *range;
    matrix weight;
    const int32_t *token;
    int64_t row, end; /* of the part */
    int64_t column;   /* of T */
    const low_rank *low;
    int64_t first, n_rows; /* of the range */
} range_walk;

static range_walk walk_begin(const adapter_ranges *ranges, matrix weight, const int32_t *token,
                             int64_t row, int64_t n_rows)
{
    return (range_walk){
        .ranges = ranges, .weight = weight, .token = token, .row = row, .end = row + n_rows};
}

/* Ranges of the same tokens stand side by side in T. */
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

/* A gemm whose sums have the order of many rows: of Y, whose columns are many. */
static gemm ordered(const thread_scratch *thread)
{
    gemm g = thread->gemm;
    g.same_order = true;
    return g;
}

/* ---- T = scale·X·Aᵀ -------------------------------------------------------------------------- */

enum { T_ROWS = 24 }; /* of a task: A has few rows, so there is little to gain from more */

/* A gemm whose sums have the order of few rows: of T, whose columns are few. */
static gemm few_ordered(const thread_scratch *thread)
{
    gemm g = thread->gemm;
    g.few_order = true;
    return g;
}

static void t_task(void *context, int64_t task, int thread)
{
    const low_rank_work *work = context;
    const struct low_rank_item *item = work->items;
    while (item + 1 < work->items + work->n && task >= item[1].first_task) item++;
    const adapter_ranges *all = work->threads->adapters;
    int64_t row = (task - item->first_task) * T_ROWS;
    gemm g = few_ordered(&work->threads[thread]);
    range_walk w =
        walk_begin(all, item->weight, item->token, row, moe_min(T_ROWS, item->n_rows - row));
    while (walk_next(&w)) {
        float *t = item->t + w.first * all->width + w.column;
        gemm_nt_load(&g, rows_from(item->x, w.first), w.n_rows, item->k);
        gemm_nt(&g, matrix_f32(w.low->a, item->k), w.low->rank, t, all->width);
        for (int64_t r = 0; r < w.n_rows; r++)
            g.kernels->scale(w.low->rank, w.range->scale * w.low->scale, t + r * all->width);
    }
}

low_rank_work low_rank_begin(thread_scratch *threads, int n_threads)
{
    return (low_rank_work){.threads = threads,
                           .n_threads = n_threads,
                           .at = threads->adapters ? threads->adapters->t : NULL};
}

float *low_rank_want(low_rank_work *work, matrix weight, rows x, int64_t n_rows, int64_t k,
                     const int32_t *token)
{
    const adapter_ranges *all = work->threads->adapters;
    if (!all) return NULL;
    range_walk w = walk_begin(all, weight, token, 0, n_rows);
    if (!walk_next(&w)) return NULL;
    if (work->n == LOW_RANK_BATCH) low_rank_end(work);
    float *t = work->at;
    work->items[work->n++] = (struct low_rank_item){
        .weight = weight, .x = x, .n_rows = n_rows, .k = k, .token = token, .t = t};
    work->at += low_rank_floats(all, n_rows);
    return t;
}

void low_rank_end(low_rank_work *work)
{
    int64_t n_tasks = 0;
    for (int i = 0; i < work->n; i++) {
        work->items[i].first_task = n_tasks;
        n_tasks += moe_parts(work->items[i].n_rows, T_ROWS);
    }
    if (n_tasks > 0) threads_for(work->n_threads, n_tasks, t_task, work);
    work->n = 0;
}

/* ---- Y += T·Bᵀ ------------------------------------------------------------------------------- */

void low_rank_add(const thread_scratch *thread, const low_rank_part *part, float *y, int64_t ldy)
{
    const adapter_ranges *all = thread->adapters;
    gemm g = ordered(thread);
    range_walk w = walk_begin(all, part->weight, part->token, part->row, part->n_rows);
    while (walk_next(&w)) {
        const float *t = part->t + w.first * all->width + w.column;
        const float *b = w.low->b + part->weight.home_row * w.low->rank;
        gemm_nt_load(&g, (rows){t, all->width, NULL}, w.n_rows, w.low->rank);
        gemm_nt_add(&g, matrix_f32(b, w.low->rank), part->n_columns,
                    y + (w.first - part->row) * ldy, ldy);
    }
}

void scratch_adapt(thread_scratch *threads, int n_threads, const adapter_ranges *adapters)
{
    for (int i = 0; i < n_threads; i++) threads[i].adapters = adapters;
}

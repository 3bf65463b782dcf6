/* cut.c - how products are cut into tasks. */
#include "moe/cut.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t n_parts(const cut_product *c) { return ceil_div(c->n_columns, c->part); }

static int64_t n_tasks(const cut_product *c) { return c->n_slices * n_parts(c); }

static int64_t total_cost(const cut_product *list, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += list[i].n_slices * cut_cost(ceil_div(list[i].n_rows, max64(1, list[i].n_slices)),
                                           list[i].n_columns, list[i].k);
    return sum;
}

/* How many columns a task gets: a multiple of `unit` that costs about `most` or less, and such that the last
 * part is not much smaller than the others. */
static int64_t part_of(const cut_product *c, int64_t most, int64_t unit)
{
    int64_t rows_here = ceil_div(c->n_rows, max64(1, c->n_slices));
    int64_t widest = rows_here > CUT_FEW_ROWS ? CUT_WIDEST : CUT_WIDEST_FEW;
    int64_t part = most / max64(1, cut_cost(rows_here, 1, c->k));
    part = max64(unit, min64(part, widest) / unit * unit);
    int64_t even = ceil_div(ceil_div(c->n_columns, ceil_div(c->n_columns, part)), unit) * unit;
    return max64(unit, min64(part, even));
}

static int64_t cut_with(cut_product *list, int64_t n, int64_t most, int64_t unit)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        list[i].part =
            part_of(&list[i], most, dtype_is_block(list[i].type) ? unit : CUT_FLOAT_UNIT);
        list[i].first_task = count;
        count += n_tasks(&list[i]);
    }
    return count;
}

int64_t cut_tasks(cut_product *list, int64_t n, int n_threads)
{
    for (int64_t i = 0; i < n; i++) list[i].n_slices = ceil_div(list[i].n_rows, GEMM_ROWS);
    int64_t most = total_cost(list, n) / ((int64_t)CUT_PER_THREAD * n_threads);
    int64_t count = cut_with(list, n, most, CUT_UNIT);
    /* If there are few tasks and the last round leaves many threads idle, cut at octets. */
    int64_t rounds = ceil_div(count, n_threads);
    if (rounds < CUT_PER_THREAD && count * 10 < rounds * n_threads * 9)
        count = cut_with(list, n, most, BLOCK_OCTET);
    return count;
}

cut_task cut_task_at(const cut_product *list, int64_t n, int64_t task)
{
    int64_t low = 0, high = n; /* look for the last product whose first task is not after `task` */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (list[middle].first_task <= task)
            low = middle;
        else
            high = middle;
    }
    const cut_product *c = &list[low];
    /* All slices of a part come in succession, while its weights are in a cache. */
    int64_t slice = (task - c->first_task) % c->n_slices;
    int64_t column = (task - c->first_task) / c->n_slices * c->part;
    int64_t row = c->n_rows * slice / c->n_slices, end = c->n_rows * (slice + 1) / c->n_slices;
    return (cut_task){low, row, end - row, column, min64(c->part, c->n_columns - column)};
}

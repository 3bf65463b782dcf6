/* cut.h - how products are cut into tasks: pure arithmetic, which tests can count.
 *
 * A task is (some rows of x, some columns of y). Tasks are handed out one after the other to the thread that is
 * free, so threads wait at the end for at most one task: with CUT_PER_THREAD of them for each thread, all
 * about as long, that is less than a tenth of the time. Results do not depend on it. */
#ifndef DSMOE_MOE_CUT_H
#define DSMOE_MOE_CUT_H

#include <stdint.h>

#include "kernels/gemm.h"

enum {
    CUT_PER_THREAD = 10,
    CUT_UNIT = 16,       /* columns are cut at multiples of this, and of single octets at worst; */
    CUT_FLOAT_UNIT = 32, /* of plain types, where every task packs its rows of x, of this */
    CUT_WIDEST = 704, /* most columns of a task: half of the released model's experts, in a cache */
    CUT_FEW_ROWS = 8, /* up to so many rows read weights once: then they may have */
    CUT_WIDEST_FEW = 8 * CUT_WIDEST, /* so many columns */
};

/* One product. */
typedef struct cut_product {
    int64_t n_rows, n_columns, k;
    dsmoe_dtype type; /* of the weight */
    /* What cut_tasks makes of it: */
    int64_t n_slices; /* of rows, about equal */
    int64_t part;     /* columns of a task; its last one may have fewer */
    int64_t first_task;
} cut_product;

/* Some rows and columns of product `item`. */
typedef struct cut_task {
    int64_t item, row, n_rows, column, n_columns;
} cut_task;

/* Cuts n products that run together; the number of tasks. */
int64_t cut_tasks(cut_product *list, int64_t n, int n_threads);
cut_task cut_task_at(const cut_product *list, int64_t n, int64_t task);

/* About how long some columns of n_rows rows take: reading a weight takes as long as multiplying it with
 * CUT_READING rows. */
enum { CUT_READING = 3 };
static inline int64_t cut_cost(int64_t n_rows, int64_t n_columns, int64_t k)
{
    return n_rows > 0 ? (n_rows + CUT_READING) * n_columns * k : 0;
}

#endif

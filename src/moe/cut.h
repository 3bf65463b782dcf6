/* cut.h - how products are cut into tasks: pure arithmetic, which tests can check.
 *
 * A task is (some rows of x, some columns of y). Each thread takes the next task when it is free, so at the
 * end threads wait for one task at most. Each thread gets about CUT_PER_THREAD tasks of about equal length,
 * so that wait is less than a tenth of the time. Results do not depend on the cut. */
#ifndef DSMOE_MOE_CUT_H
#define DSMOE_MOE_CUT_H

#include <stdint.h>

#include "kernels/gemm.h"

enum {
    CUT_PER_THREAD = 10,
    CUT_UNIT = 16,       /* columns are cut at multiples of this; with few tasks, of an octet */
    CUT_FLOAT_UNIT = 32, /* the same for plain types, where every task packs its rows of x */
    CUT_WIDEST = 704,    /* most columns of a task: half an expert of the released model */
    CUT_FEW_ROWS = 8,    /* a task of up to this many rows reads each weight once, so it */
    CUT_WIDEST_FEW = 8 * CUT_WIDEST, /* may have more columns */
};

/* One product. */
typedef struct cut_product {
    int64_t n_rows, n_columns, k;
    dsmoe_dtype type; /* of the weight */
    /* Set by cut_tasks: */
    int64_t n_slices; /* into which the rows are cut, about equal */
    int64_t part;     /* columns of a task; the last one may have fewer */
    int64_t first_task;
} cut_product;

/* Some rows and columns of product `item`. */
typedef struct cut_task {
    int64_t item, row, n_rows, column, n_columns;
} cut_task;

/* Cuts n products that run together, and returns the number of tasks. */
int64_t cut_tasks(cut_product *list, int64_t n, int n_threads);
cut_task cut_task_at(const cut_product *list, int64_t n, int64_t task);

/* About how long n_columns columns of n_rows rows take. Reading a weight takes as long as multiplying it with
 * CUT_READING rows. */
enum { CUT_READING = 3 };
static inline int64_t cut_cost(int64_t n_rows, int64_t n_columns, int64_t k)
{
    return n_rows > 0 ? (n_rows + CUT_READING) * n_columns * k : 0;
}

#endif

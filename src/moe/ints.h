/* ints.h - x in the integers that products with block types read (see block_x): made once for all
 * products and tasks that run together, row by row, in memory that threads share. */
#ifndef DSMOE_MOE_INTS_H
#define DSMOE_MOE_INTS_H

#include "moe/moe.h"
#include "moe/scratch.h"

/* The forms that a weight wants, as bits 1 << block_form; none for plain types. */
unsigned ints_forms(const kernels *kn, matrix weight);
unsigned ints_forms_of_expert(const kernels *kn, const moe_expert *expert);

/* Bytes of n_rows rows of k numbers in these forms. */
size_t ints_size(unsigned forms, int64_t n_rows, int64_t k);

/* Rows that are about to be used. */
enum { INTS_BATCH = 64 };
typedef struct int_work {
    const kernels *kernels;
    int n_threads;
    char *at;
    size_t left; /* bytes */
    int n;
    struct int_item {
        rows x;
        int64_t n_rows, k;
        block_form form;
        char *to;
        int64_t first_task; /* of the batch */
    } items[INTS_BATCH];
} int_work;

/* One after the other: begin, which takes the threads' shared memory for new rows; want, with an empty
 * home at first, whatever a weight will meet; end. Where memory does not suffice a home stays without
 * the form, and every task makes its own. */
int_work ints_begin(const thread_scratch *threads, int n_threads);
void ints_want(int_work *work, x_home *home, rows x, int64_t n_rows, int64_t k, matrix weight);
void ints_end(int_work *work);

#endif

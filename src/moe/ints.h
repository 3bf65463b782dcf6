/* ints.h - x in integers, for products with weights of block types (see block_x).
 *
 * Rows are converted to integers once for all products and tasks that run together, in memory that threads
 * share. */
#ifndef DSMOE_MOE_INTS_H
#define DSMOE_MOE_INTS_H

#include "moe/moe.h"
#include "moe/scratch.h"

/* The forms of x that a weight needs, as bits 1 << block_form; 0 for plain types. */
unsigned ints_forms(const kernels *kn, matrix weight);
unsigned ints_forms_of_expert(const kernels *kn, const moe_expert *expert);

/* Bytes of n_rows rows of k numbers in these forms. */
size_t ints_size(unsigned forms, int64_t n_rows, int64_t k);

/* Rows that products are about to read. */
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

/* ints_begin reuses the threads' shared memory for new rows. ints_want then asks for the rows that a weight
 * will be multiplied with; each home is empty before its first call. ints_end makes them. If memory does not
 * suffice, the home stays without that form, and every task makes its own. */
int_work ints_begin(const thread_scratch *threads, int n_threads);
void ints_want(int_work *work, x_home *home, rows x, int64_t n_rows, int64_t k, matrix weight);
void ints_end(int_work *work);

#endif

/* linear.h - y = x·Wᵀ + b over several threads. */
#ifndef DSMOE_MODEL_LINEAR_H
#define DSMOE_MODEL_LINEAR_H

#include "moe/moe.h"
#include "moe/scratch.h"

typedef struct product {
    rows x; /* [n_rows, n_in] */
    int64_t n_rows, n_in;
    matrix weight;     /* [n_out, n_in] */
    const float *bias; /* [n_out], or NULL */
    int64_t n_out;
    float *y; /* [n_rows, n_out] */
} product;

/* The most products that run together. */
enum { LINEAR_MOST = 4 };

/* Cuts products into tasks, one product after the other. Returns the number of tasks. */
int64_t linear_cut(const product *products, int n_products, int n_threads, cut_product *cuts);

/* Runs several independent products together, so that no thread waits between them. The scratch must have
 * room for their x as integers (see ints.h). */
void linear_run(const product *products, int n_products, thread_scratch *threads, int n_threads);

/* Shows the inputs of products to `watch`, if it is not NULL. */
void linear_show(const product *products, int n_products, const input_watch *watch);

#endif

/* low_rank.h - y = W·x + Σ scale·B·(A·x): low-rank additions to products with weights of any type, LoRA.
 *
 * An adapter has such an addition for some tensors of a model. Which rows of a pass meet which adapters is a list of
 * ranges of tokens, so that requests with different adapters share a pass, and training is the case of one range over
 * all tokens. The list is the threads' (see scratch_adapt); linear_run and experts_forward ask it for every product.
 *
 *   T = scale·X·Aᵀ    for all products that run together, in tasks before theirs: low_rank_begin … low_rank_run
 *   Y += T·Bᵀ         in each of their tasks, after its part of Y is there: low_rank_add
 *
 * Tasks of both kinds are handed out together. A task of a product needs T at its end only, when those that make it, which
 * were begun before it, are long done: so threads do not wait for each other between the two.
 *
 * Each sum has one order, T's that of few rows and Y's that of many: a row's bits do not depend on its company, whatever the
 * weight's type. */
#ifndef DSMOE_MOE_LOW_RANK_H
#define DSMOE_MOE_LOW_RANK_H

#include "base/threads.h"
#include "moe/moe.h"
#include "moe/scratch.h"

enum { LOW_RANK_MOST = 256 }; /* the largest rank: what every gemm has room for */

typedef struct low_rank {
    const void *a;  /* [rank, in] */
    const float *b; /* [out, rank], of an adapter that is being trained; */
    /* of any other [⌈out/PANEL_COLUMNS⌉][rank][PANEL_COLUMNS], which few rows take as it lies: see add_panels. One of
     * the two is NULL. */
    const void *panels;
    dsmoe_dtype a_type, panels_type; /* plain ones */
    int64_t rank;                    /* 0: the tensor has none */
    float scale;                     /* alpha/rank, or alpha/√rank */
} low_rank;

/* Where B[column][r] is in panels. */
static inline int64_t low_rank_place(int64_t rank, int64_t column, int64_t r)
{
    return (column / PANEL_COLUMNS * rank + r) * PANEL_COLUMNS + column % PANEL_COLUMNS;
}

/* Numbers of A, or of B in panels, as float32. */
static inline void low_rank_widen(dsmoe_dtype type, const void *numbers, int64_t first, int64_t n,
                                  float *out)
{
    const unsigned char *from = (const unsigned char *)numbers + dtype_bytes(type, first);
    kernels_get()->dtypes[type].widen(n, from, out);
}

/* Additions to the tensors of a model: that of a matrix m is of[m.id]. Rows of B lie as those of the tensor. */
typedef struct adapter {
    const low_rank *of; /* [n], of[0] is empty */
    int64_t n;
    int64_t most_rank; /* the largest of them */
} adapter;

/* Tokens [first, end) of a pass meet an adapter, whose additions are multiplied by `scale`. */
typedef struct adapter_range {
    const adapter *adapter;
    float scale;
    int64_t first, end;
} adapter_range;

/* By their first token. Two ranges have the same tokens, which then meet both adapters, or none in common. */
struct adapter_ranges {
    const adapter_range *list;
    int64_t n;
    int64_t first; /* tokens of the list before token 0 of this pass */
    int64_t
        width; /* floats of T for a row: at least the sum of most_rank of the adapters that a token meets */
    float *t; /* room for T: low_rank_floats of whatever runs together */
};

/* Floats of T for n_rows rows; experts_forward makes those of gate_proj and up_proj at once. */
static inline int64_t low_rank_floats(const adapter_ranges *r, int64_t n_rows)
{
    return r ? r->width * n_rows : 0;
}

/* T of products that are about to run: begin, want each, run their tasks. */
enum { LOW_RANK_BATCH = 64 };
typedef struct low_rank_work {
    thread_scratch *threads;
    int n_threads;
    float *at;
    int n;
    struct low_rank_item {
        matrix weight;
        rows x;
        int64_t n_rows, k;
        const int32_t *token;
        float *t;
        int64_t first_task; /* of the batch */
    } items[LOW_RANK_BATCH];
    int64_t n_tasks;        /* of the batch, */
    _Atomic int64_t n_made; /* that are done */
    threads_task_fn *task;  /* of the products */
    void *context;
} low_rank_work;

void low_rank_begin(low_rank_work *work, thread_scratch *threads, int n_threads);
/* Where T of a product will be, [n_rows, width]; NULL if no row meets an addition. Row r of x is of token[r], which
 * rises, or of token r if that is NULL. */
float *low_rank_want(low_rank_work *work, matrix weight, rows x, int64_t n_rows, int64_t k,
                     const int32_t *token);
/* Makes T, and runs the products' own tasks, as threads_for would. */
void low_rank_run(low_rank_work *work, int64_t n_tasks, threads_task_fn *task, void *context);

/* Rows of a product whose T is made, or being made. */
typedef struct low_rank_part {
    const low_rank_work *work;
    matrix weight; /* from the first column of y on: see matrix_from */
    const float *t;
    const int32_t *token;
    int64_t row, n_rows, n_columns;
} low_rank_part;

/* Asks memory for what low_rank_add will need: before the task's own product. */
void low_rank_ask(const thread_scratch *thread, const low_rank_part *part);
/* y[i·ldy + j] += T_i · B_j for rows from part->row on, whose y begins there; nothing if part->t is NULL. */
void low_rank_add(const thread_scratch *thread, const low_rank_part *part, float *y, int64_t ldy);

/* From now on products of these threads meet these adapters; NULL: none. */
void scratch_adapt(thread_scratch *threads, int n_threads, const adapter_ranges *adapters);

#endif

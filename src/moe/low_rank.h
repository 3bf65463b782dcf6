/* low_rank.h - y = W·x + Σ scale·B·(A·x): low-rank additions to products with weights of any type (LoRA).
 *
 * An adapter has such additions for some tensors of a model. A list of token ranges says which adapters apply
 * to which rows of a pass, so that requests with different adapters can share a pass. Training has one range
 * over all tokens. The threads' scratch holds the list (see scratch_adapt); linear_run and experts_forward
 * look in it for every product.
 *
 *   T = scale·X·Aᵀ    for all products that run together, in separate tasks: low_rank_begin … low_rank_run
 *   Y += T·Bᵀ         in each task of the products, when its part of Y is done: low_rank_add
 *
 * The tasks of both kinds are one list, in which those that make T come first. A task of a product needs T
 * only at its end. By then T is usually done, so threads hardly wait for each other.
 *
 * Each sum has one order: T is added up in the order of few rows and Y in the order of many (see gemm.h). So
 * a row's bits do not depend on the other rows of the pass, whatever the type of the weight. */
#ifndef DSMOE_MOE_LOW_RANK_H
#define DSMOE_MOE_LOW_RANK_H

#include "base/threads.h"
#include "moe/moe.h"
#include "moe/scratch.h"

enum { LOW_RANK_MOST = 256 }; /* the largest rank: every gemm has space for it */

typedef struct low_rank {
    const void *a; /* [rank, in] */
    /* B of an adapter that is being trained, [out, rank]; otherwise NULL. */
    const float *b;
    /* B of any other adapter, [⌈out/PANEL_COLUMNS⌉][rank][PANEL_COLUMNS] as add_panels reads it; otherwise
     * NULL. */
    const void *panels;
    dsmoe_dtype a_type, panels_type; /* plain types */
    int64_t rank;                    /* 0: the tensor has no addition */
    float scale;                     /* alpha/rank, or alpha/√rank */
} low_rank;

/* The index of B[column][r] in panels. */
static inline int64_t low_rank_place(int64_t rank, int64_t column, int64_t r)
{
    return (column / PANEL_COLUMNS * rank + r) * PANEL_COLUMNS + column % PANEL_COLUMNS;
}

/* n numbers of A or of panels as float32, beginning with number `first`. */
static inline void low_rank_widen(dsmoe_dtype type, const void *numbers, int64_t first, int64_t n,
                                  float *out)
{
    const unsigned char *from = (const unsigned char *)numbers + dtype_bytes(type, first);
    kernels_get()->dtypes[type].widen(n, from, out);
}

/* Additions to the tensors of a model: of[m.id] belongs to matrix m. Rows of B are in the order of the
 * tensor's. */
typedef struct adapter {
    const low_rank *of; /* [n]; of[0] is not used */
    int64_t n;
    int64_t most_rank; /* the largest rank of these additions */
} adapter;

/* An adapter applies to tokens [first, end) of a pass; its additions are multiplied by `scale`. */
typedef struct adapter_range {
    const adapter *adapter;
    float scale;
    int64_t first, end;
} adapter_range;

/* Ranges sorted by first token. Two ranges either have the same tokens, to which both adapters then apply, or
 * no token in common. */
struct adapter_ranges {
    const adapter_range *list;
    int64_t n;
    int64_t first; /* token 0 of this pass is token `first` of the list */
    int64_t width; /* floats of T in a row: at least Σ most_rank over any token's adapters */
    float *t;      /* [low_rank_floats] of all products that run together */
};

/* Floats of T for n_rows rows of one product. experts_forward makes T of gate_proj and up_proj together. */
static inline int64_t low_rank_floats(const adapter_ranges *r, int64_t n_rows)
{
    return r ? r->width * n_rows : 0;
}

/* T of products that are about to run: low_rank_begin, low_rank_want for each, low_rank_run. */
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
        int64_t first_task; /* among those of the batch */
    } items[LOW_RANK_BATCH];
    int64_t n_tasks;        /* tasks of the batch that make T */
    _Atomic int64_t n_made; /* how many of these are done */
    threads_task_fn *task;  /* of the products */
    void *context;
} low_rank_work;

void low_rank_begin(low_rank_work *work, thread_scratch *threads, int n_threads);
/* Where T of a product will be, [n_rows, width]; NULL if no row has an addition. Row r of x belongs to
 * token[r], which must be in rising order, or to token r if `token` is NULL. */
float *low_rank_want(low_rank_work *work, matrix weight, rows x, int64_t n_rows, int64_t k,
                     const int32_t *token);
/* Makes T and runs the tasks of the products, as threads_for would. */
void low_rank_run(low_rank_work *work, int64_t n_tasks, threads_task_fn *task, void *context);

/* Some rows and columns of a product, whose T is done or being made. */
typedef struct low_rank_part {
    const low_rank_work *work;
    matrix weight; /* beginning with the row for the first column of y: see matrix_from */
    const float *t;
    const int32_t *token;
    int64_t row, n_rows, n_columns;
} low_rank_part;

/* Prefetches what low_rank_add will read. Call it before the task's own product. */
void low_rank_ask(const thread_scratch *thread, const low_rank_part *part);
/* y[i·ldy + j] += T_i · B_j for the rows and columns of the part; y points to its first row and column. Does
 * nothing if part->t is NULL. */
void low_rank_add(const thread_scratch *thread, const low_rank_part *part, float *y, int64_t ldy);

/* Sets the adapters for all later products of these threads; NULL: none. */
void scratch_adapt(thread_scratch *threads, int n_threads, const adapter_ranges *adapters);

#endif

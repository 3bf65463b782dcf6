/* outline.h - a training step in outline: what each rank computes and what it sends to which rank, in the order in
 * which it does, without the numbers themselves. Sizes come from what training itself asks (shares.h, wave.h,
 * travel.h), so a model of any size and any number of ranks can be looked at on one machine. tests/test_outline.c
 * holds it beside what ranks really send. */
#ifndef DSMOE_TRAIN_OUTLINE_H
#define DSMOE_TRAIN_OUTLINE_H

#include "moe/wave.h"
#include "train/trainer.h"

/* What a rank computes: FLOPs as dsmoe_model_plan counts them, half of attention's square; the last in bytes. */
typedef enum outline_work {
    OUTLINE_ATTENTION, /* and the router */
    OUTLINE_EXPERTS,   /* and dense FFNs */
    OUTLINE_HEAD,
    OUTLINE_MEMORY, /* what only reads and writes: the optimizer, sums of gradients, packing of rows */
} outline_work;
enum { OUTLINE_WORKS = OUTLINE_MEMORY + 1 };

/* Bytes of the optimizer for each number: the gradient for its norm; then gradient, weight and moments, of which
 * the last three are written as well. */
enum { OUTLINE_NORM_BYTES = 4, OUTLINE_UPDATE_BYTES = 28 };

/* What it sends. */
typedef enum outline_goods {
    OUTLINE_GRADIENTS,
    OUTLINE_WEIGHTS,
    OUTLINE_ROWS,
    OUTLINE_WORDS, /* reports, counts of rows, norms */
} outline_goods;
enum { OUTLINE_GOODS = OUTLINE_WORDS + 1 };

/* How often experts are chosen: [n_layers, n_routed_experts], over the mean. MoE layer i takes row i mod n_layers.
 * NULL: each as often as the others. */
typedef struct outline_loads {
    const double *loads;
    int64_t n_layers;
} outline_loads;

/* What the ranks say about a layer's rows before they travel, and the rounds that follow from it. */
typedef struct outline_rows {
    int32_t *said; /* as wave.h has it */
    unit_range *rounds;
    int n_rounds;
} outline_rows;

typedef struct outline {
    dsmoe_trainer *small; /* rank 0's: what is asked of it is the same on all ranks */
    dsmoe_peers peers;    /* a table without functions */
    dsmoe_model_plan plan;
    int n_ranks;
    int64_t n_units; /* batches of a step */
    /* Set after opening: new weights travel at the end of the step, as with dsmoe_trainer_update. Otherwise those of the
     * step before travel while this one goes forward, as with dsmoe train. */
    bool waits;
    size_t *norms; /* [n_ranks] bytes of norms that each sends */
    double *n_own; /* [n_ranks] numbers that each owns */
    outline_rows
        *rows[2]; /* [n_tables] of a whole wave; of the last one, in which ranks may have no unit */
    int64_t *load;    /* [n_ranks] of scratch for opening */
    int64_t n_tables; /* 0 unless experts are divided */
} outline;

/* options->peers is not looked at. */
dsmoe_status outline_open(const dsmoe_config *config, const dsmoe_trainer_options *options,
                          int n_ranks, int64_t n_units, outline_loads loads, outline **out,
                          dsmoe_error *error);
void outline_close(outline *o); /* NULL is allowed */

/* The rounds of rows that have been said. */
void outline_find_rounds(const outline *o, outline_rows *table);

/* Told of everything that a rank does, one after the other. Sizes are bytes, [n_ranks] of them; nothing goes to the
 * rank itself. Between begin and end it computes while bytes travel. */
typedef struct outline_watch {
    void *context;
    dsmoe_status (*compute)(void *context, outline_work work, double amount, dsmoe_error *error);
    dsmoe_status (*begin)(void *context, outline_goods goods, const size_t *send,
                          const size_t *receive, dsmoe_error *error);
    dsmoe_status (*end)(void *context, dsmoe_error *error);
    dsmoe_status (*gather)(void *context, outline_goods goods, const size_t *parts,
                           dsmoe_error *error);
} outline_watch;

/* One step of a rank, with the update. Several ranks may be walked at the same time. */
dsmoe_status outline_walk(const outline *o, int rank, const outline_watch *watch,
                          dsmoe_error *error);

#endif

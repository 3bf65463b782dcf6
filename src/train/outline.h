/* outline.h - a training step in outline: what each rank computes and what it sends to which rank, in
 * order, without the numbers themselves. Sizes come from the code that training itself uses (shares.h,
 * wave.h, travel.h), so a model of any size with any number of ranks can be examined on one machine.
 * tests/test_outline.c compares the outline with what ranks really send. */
#ifndef DSMOE_TRAIN_OUTLINE_H
#define DSMOE_TRAIN_OUTLINE_H

#include "moe/wave.h"
#include "train/trainer.h"

/* What a rank computes, in FLOPs as dsmoe_model_plan counts them, with half of attention's square;
 * OUTLINE_MEMORY is in bytes. */
typedef enum outline_work {
    OUTLINE_ATTENTION, /* with the router */
    OUTLINE_EXPERTS,   /* with dense FFNs */
    OUTLINE_HEAD,
    OUTLINE_MEMORY, /* what only reads and writes: optimizer, sums of gradients, packing of rows */
} outline_work;
enum { OUTLINE_WORKS = OUTLINE_MEMORY + 1 };

/* Bytes that the optimizer moves for each number: the gradient for its norm; then gradient, weight and
 * moments, of which it also writes the last three. */
enum { OUTLINE_NORM_BYTES = 4, OUTLINE_UPDATE_BYTES = 28 };

/* What a rank sends. */
typedef enum outline_goods {
    OUTLINE_GRADIENTS,
    OUTLINE_WEIGHTS,
    OUTLINE_ROWS,
    OUTLINE_WORDS, /* reports, counts of rows, norms */
} outline_goods;
enum { OUTLINE_GOODS = OUTLINE_WORDS + 1 };

/* How often experts are chosen, relative to the mean: [n_layers, n_routed_experts]. MoE layer i uses row i
 * mod n_layers. NULL: all equally often. */
typedef struct outline_loads {
    const double *loads;
    int64_t n_layers;
} outline_loads;

/* What the ranks report about a layer's rows before sending them, and the rounds that follow from it. */
typedef struct outline_rows {
    int32_t *said; /* as in wave.h */
    unit_range *rounds;
    int n_rounds;
} outline_rows;

typedef struct outline {
    dsmoe_trainer *small; /* rank 0's; what is used of it is the same on all ranks */
    dsmoe_peers peers;    /* a table without functions */
    dsmoe_model_plan plan;
    int n_ranks;
    int64_t n_units; /* batches of a step */
    /* May be set after opening: new weights are sent at the end of the step, as with dsmoe_trainer_update.
     * Otherwise those of the previous step are sent during forward, as with dsmoe train. */
    bool waits;
    size_t *norms;         /* [n_ranks] bytes of norms that each rank sends */
    double *n_own;         /* [n_ranks] numbers that each rank owns */
    outline_rows *rows[2]; /* [n_tables] for a full wave; for the last one */
    int64_t *load;         /* [n_ranks] scratch for opening */
    int64_t n_tables;      /* 0 unless experts are divided */
} outline;

/* options->peers is ignored. */
dsmoe_status outline_open(const dsmoe_config *config, const dsmoe_trainer_options *options,
                          int n_ranks, int64_t n_units, outline_loads loads, outline **out,
                          dsmoe_error *error);
void outline_close(outline *o); /* NULL is allowed */

/* Finds the rounds from table->said. */
void outline_find_rounds(const outline *o, outline_rows *table);

/* Called for everything that a rank does, in order. Sizes are bytes, [n_ranks] of them; a rank sends
 * nothing to itself. What is computed between begin and end is computed while bytes are sent. */
typedef struct outline_watch {
    void *context;
    dsmoe_status (*compute)(void *context, outline_work work, double amount, dsmoe_error *error);
    dsmoe_status (*begin)(void *context, outline_goods goods, const size_t *send,
                          const size_t *receive, dsmoe_error *error);
    dsmoe_status (*end)(void *context, dsmoe_error *error);
    dsmoe_status (*gather)(void *context, outline_goods goods, const size_t *parts,
                           dsmoe_error *error);
} outline_watch;

/* Walks through one step of a rank, with the update. Several ranks may be walked at the same time. */
dsmoe_status outline_walk(const outline *o, int rank, const outline_watch *watch,
                          dsmoe_error *error);

#endif

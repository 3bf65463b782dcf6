/* dsmoe/scale.h - planning several machines: what a training step takes on so many ranks. */
#ifndef DSMOE_SCALE_H
#define DSMOE_SCALE_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How fast a rank trains: FLOP/s in the parts of a step, counted as dsmoe_model_plan does, with half of
 * attention's square; and bytes/s of what only reads and writes, such as the optimizer. */
typedef struct dsmoe_training_speed {
    double attention, experts, head; /* router and norms are in attention, dense FFNs in experts */
    double memory;
} dsmoe_training_speed;
/* From the times of a step of n_units batches that one rank made alone. */
DSMOE_API dsmoe_status dsmoe_training_speed_find(const dsmoe_config *config,
                                                 const dsmoe_trainer_options *options,
                                                 int64_t n_units, const dsmoe_trainer_times *times,
                                                 dsmoe_training_speed *speed, dsmoe_error *error);

typedef struct dsmoe_scale_options {
    dsmoe_trainer_options trainer; /* of each rank; peers is not looked at */
    int n_ranks;
    int64_t n_units;  /* batches of a step, of all ranks together */
    double bandwidth; /* bytes/s of the cable of a rank, either way */
    double latency;   /* seconds from one rank to another */
    dsmoe_training_speed speed;
    /* How often experts are chosen over the mean, [n_load_layers, n_routed_experts]: MoE layer i takes row i mod
     * n_load_layers. NULL: the experts of one rank `imbalance` times as often as the mean, the others alike; an
     * imbalance of 0 is one of 1. */
    const double *loads;
    int64_t n_load_layers;
    double imbalance;
} dsmoe_scale_options;

/* A training step of n_units batches on n_ranks ranks, predicted. */
typedef struct dsmoe_scale {
    dsmoe_trainer_memory memory;      /* of the rank that takes most */
    size_t most_memory, least_memory; /* all of it together; and of the rank that takes least */
    /* Bytes that a rank sends in a step, the mean over the ranks: */
    double gradients, weights, rows, words; /* words: reports, counts of rows, norms */
    /* Seconds: */
    double step; /* the sum of the next three, which are means over the ranks */
    double computing;
    double waiting; /* for ranks that have more to do */
    double sending; /* the part that computing does not hide */
    double hidden;  /* the part that it does */
    /* Of computing: the products of the model, each once; the rest are sums, the optimizer and what is computed
     * again. */
    double useful;
} dsmoe_scale;
DSMOE_API dsmoe_status dsmoe_scale_predict(const dsmoe_config *config,
                                           const dsmoe_scale_options *options, dsmoe_scale *scale,
                                           dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* dsmoe/scale.h - planning for several machines: predicts a training step on several ranks. */
#ifndef DSMOE_SCALE_H
#define DSMOE_SCALE_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How fast a rank trains: FLOP/s in each part of a step, counted as in dsmoe_model_plan but with half of
 * attention's square; and bytes/s of work that only reads and writes, such as the optimizer. */
typedef struct dsmoe_training_speed {
    double attention, experts, head; /* router, norms: in attention; dense FFNs: in experts */
    double memory;
} dsmoe_training_speed;
/* Finds the speed from the times of a step of n_units batches that one rank made alone. */
DSMOE_API dsmoe_status dsmoe_training_speed_find(const dsmoe_config *config,
                                                 const dsmoe_trainer_options *options,
                                                 int64_t n_units, const dsmoe_trainer_times *times,
                                                 dsmoe_training_speed *speed, dsmoe_error *error);

typedef struct dsmoe_scale_options {
    dsmoe_trainer_options trainer; /* of each rank; its peers are ignored */
    int n_ranks;
    int64_t n_units;  /* batches of a step, of all ranks together */
    double bandwidth; /* bytes/s of a rank's network link, in each direction */
    double latency;   /* seconds from one rank to another */
    dsmoe_training_speed speed;
    /* How often each expert is chosen over the mean, [n_load_layers, n_routed_experts]: MoE layer i takes row
     * i mod n_load_layers. NULL: the experts of one rank are chosen `imbalance` times as often as the mean,
     * all others equally often. An imbalance of 0 means 1. */
    const double *loads;
    int64_t n_load_layers;
    double imbalance;
} dsmoe_scale_options;

/* A training step of n_units batches on n_ranks ranks, predicted. */
typedef struct dsmoe_scale {
    dsmoe_trainer_memory memory;      /* of the rank that takes most */
    size_t most_memory, least_memory; /* total of that rank, and of the one that takes least */
    /* Bytes that a rank sends in a step, the mean over the ranks: */
    double gradients, weights, rows, words; /* words: reports, counts of rows, norms */
    /* Seconds: */
    double step; /* the sum of the next three, which are means over the ranks */
    double computing;
    double waiting; /* for ranks that have more work */
    double sending; /* the part that computing does not hide */
    double hidden;  /* the part that computing hides */
    /* The part of computing that is products of the model, each once. The rest is sums, the optimizer and
     * what is computed again. */
    double useful;
} dsmoe_scale;
DSMOE_API dsmoe_status dsmoe_scale_predict(const dsmoe_config *config,
                                           const dsmoe_scale_options *options, dsmoe_scale *scale,
                                           dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* train_speed.h - training steps of a fresh model on random tokens, timed: what `bench train` shows and what
 * `plan` predicts with. */
#ifndef DSMOE_CLI_TRAIN_SPEED_H
#define DSMOE_CLI_TRAIN_SPEED_H

#include <stdbool.h>

#include "dsmoe.h"

typedef struct train_speed_case {
    dsmoe_config config;
    dsmoe_trainer_options options; /* with peers, each rank makes the same call */
    int64_t n_units;               /* batches of a step, of all ranks */
    double seconds;                /* how long to measure, but at least three steps */
} train_speed_case;

typedef struct train_speed {
    double step_s;             /* the best step */
    dsmoe_trainer_times times; /* its parts, means over the ranks */
    dsmoe_machine machine;     /* the best measured between steps: all ranks together */
    dsmoe_trainer_memory memory;
    double loss;
    int n_steps;
    int64_t peak_rss; /* of the rank that has most, after the first step */
} train_speed;

dsmoe_status train_speed_measure(const train_speed_case *of, train_speed *out, dsmoe_error *error);

/* FLOPs of a step of one batch. Attention counts half of the square, the part that is used. */
dsmoe_status train_speed_flops(const dsmoe_config *config, const dsmoe_trainer_options *options,
                               double *flops, dsmoe_error *error);

#endif

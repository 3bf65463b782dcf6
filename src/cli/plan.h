/* plan.h - the parts of `dsmoe plan`. */
#ifndef DSMOE_CLI_PLAN_H
#define DSMOE_CLI_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

/* Explains the model of a config.json (or of the folder that holds it); returns an exit code. */
int plan_model(const char *config_or_folder, int64_t n_tokens, bool json);

/* The configuration of a config.json, of the folder that holds it or of a run, and its path in a string to
 * free(). On failure the message is printed and the exit code returned, otherwise CLI_OK. */
int plan_config_read(const char *config_or_folder, dsmoe_config *config, char **path);

/* A training step on several machines. */
typedef struct plan_ranks_options {
    const char *config, *preset;                        /* one of the two */
    dsmoe_model_sizes sizes;                            /* replace those of the model */
    int64_t vocab_size;                                 /* 0: that of the model */
    int64_t n_ranks, batch, seq, accumulate, n_threads; /* the last two: 0 if not given */
    double network;                                     /* Gbit/s */
    double latency;                                     /* microseconds */
    double gflops, gbs;                                 /* of a rank; 0: measured here */
    double imbalance, memory; /* memory of a machine in GB; 0: this one's */
    const char *parallel;     /* NULL: both are compared */
    bool recompute, json;
} plan_ranks_options;
int plan_ranks(const plan_ranks_options *options);

#endif

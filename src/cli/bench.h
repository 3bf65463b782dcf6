/* bench.h - the parts of `dsmoe bench` and how they measure. Runs of a case alternate with measurements of
 * the machine's limits. The best of several rounds counts for both, because other load on the machine can
 * only make them slower. */
#ifndef DSMOE_CLI_BENCH_H
#define DSMOE_CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

/* Each gets "layer", "model" or "train" in argv[0] and returns an exit code. */
int bench_layer(int argc, char **argv);
int bench_model(int argc, char **argv);
int bench_train(int argc, char **argv);

extern const double bench_window; /* the shortest measurement, in seconds */

/* Fills in small numbers of both signs, made cheaply: speed does not depend on their values. */
void bench_fill(float *values, int64_t n, uint32_t seed);

/* Fills in ids from the whole vocabulary, so that all experts get tokens. */
void bench_fill_tokens(int32_t *tokens, int64_t n, int64_t vocab_size, uint64_t seed);

/* What is needed to measure the machine's limits. */
typedef struct bench_probe {
    float *memory; /* its reading is measured */
    size_t size;   /* of memory, in bytes */
    int n_threads;
} bench_probe;

/* False if there is not enough memory. */
bool bench_probe_create(bench_probe *probe, int n_threads);
void bench_probe_free(bench_probe *probe);
/* Measures for about as long as the case takes, and raises *best to what was reached. */
dsmoe_status bench_probe_measure(const bench_probe *probe, double seconds, dsmoe_machine *best,
                                 dsmoe_error *error);

/* The median of n values, which it sorts. */
double bench_median(double *values, int n);

/* Prints an error about sizes with the options that set them; returns the exit code. */
int bench_shape_error(const char *command, const dsmoe_error *error);

#endif

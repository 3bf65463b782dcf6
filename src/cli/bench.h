/* bench.h - the parts of `dsmoe bench` and how they measure: the machine's own limits in turn
 * with the case, the best of several rounds for either, since neighbours on the machine only ever
 * make things slower. */
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

extern const double bench_window; /* seconds that a measurement lasts at least */

/* Small numbers of both signs, cheaply: speed does not depend on which. */
void bench_fill(float *values, int64_t n, uint32_t seed);

/* Ids all over the vocabulary, so that all experts get their share. */
void bench_fill_tokens(int32_t *tokens, int64_t n, int64_t vocab_size, uint64_t seed);

/* What the machine's limits are measured with. */
typedef struct bench_probe {
    float *memory; /* whose reading is measured */
    size_t size;   /* of it, in bytes */
    int n_threads;
} bench_probe;

/* False if there is not enough memory. */
bool bench_probe_create(bench_probe *probe, int n_threads);
void bench_probe_free(bench_probe *probe);
/* Raises *best to what was seen now, for about as long as the case takes. */
dsmoe_status bench_probe_measure(const bench_probe *probe, double seconds, dsmoe_machine *best,
                                 dsmoe_error *error);

/* Of n values, which it sorts. */
double bench_median(double *values, int n);

/* Prints an error of a shape with the options that make it; returns the exit code. */
int bench_shape_error(const char *command, const dsmoe_error *error);

#endif

/* made_run.h - made-up runs and comparisons that look like real ones, for the reports. */
#ifndef DSMOE_TESTS_MADE_RUN_H
#define DSMOE_TESTS_MADE_RUN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct made_run {
    int64_t n_steps, done; /* of the schedule, and those that lie behind */
    int64_t log_every, eval_every, load_every, sample_every;
    int64_t n_layers, n_experts;
    int n_kinds;
    bool skips;  /* a few steps are skipped */
    bool biases; /* the gates balance by a bias */
} made_run;

/* FOLDER/metrics.jsonl through the functions that a real run calls. The clock is a made-up one. */
void made_run_write(const char *folder, const made_run *run);

/* The JSON of a comparison of architectures: seven of them, so many seeds, of which `done` are
 * trained in each; with probes if all of them are. */
void made_ablation_write(const char *json_path, int n_seeds, int done);

#endif

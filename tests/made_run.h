/* made_run.h - writes made-up runs and comparisons that look like real ones, for the reports. */
#ifndef DSMOE_TESTS_MADE_RUN_H
#define DSMOE_TESTS_MADE_RUN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct made_run {
    int64_t n_steps, done; /* steps of the schedule, and steps done */
    int64_t log_every, eval_every, load_every, sample_every;
    int64_t n_layers, n_experts;
    int n_kinds;
    bool skips;  /* a few steps are skipped */
    bool biases; /* gates with balancing biases */
} made_run;

/* Writes FOLDER/metrics.jsonl with the functions that a real run calls, by a made-up clock. */
void made_run_write(const char *folder, const made_run *run);

/* Writes the JSON of a comparison of seven architectures with n_seeds seeds each, `done` of them trained.
 * Has probes if all of them are trained. */
void made_ablation_write(const char *json_path, int n_seeds, int done);

#endif

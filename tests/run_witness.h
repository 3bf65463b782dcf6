/* run_witness.h - training runs that tests watch: what they reported, how they ended, and a run with which
 * others are compared. */
#ifndef DSMOE_TESTS_RUN_WITNESS_H
#define DSMOE_TESTS_RUN_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tiny_run.h"

/* What a run reported, and what it will be told. */
typedef struct witness {
    int n_steps, n_evals, n_samples, n_checkpoints, n_skips, n_messages, n_starts;
    int64_t first_step, last_step, n_skipped, vocab_size, max_position_embeddings;
    double first_loss, last_loss, last_lr;
    double losses[16]; /* of the first steps */
    char message[2048], skip[256], changes[512];
    double aux_loss_alpha;
    int64_t stop_at; /* the step after which to stop; 0: never */
    bool stop_at_once, stop_at_start, wants_end;
    int64_t stop_measuring_at; /* the step whose evaluation to stop; 0: none */
} witness;

/* Set-up and tear-down: a new folder with a text, a configuration and an undisturbed run, "straight". */
int make_straight_run(void **state);
int remove_straight_run(void **state);

/* Runs and watches a run; `w` may be NULL. */
dsmoe_status watch_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w,
                       dsmoe_run_result *result, dsmoe_error *error);
/* Both fail the test unless the run ends normally, or at stop_after. */
dsmoe_run_result must_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w);
dsmoe_run_result must_resume(const char *folder, int64_t stop_after, int n_threads, witness *w);
/* The run must fail with a one-line message that contains these words. */
void must_fail(const dsmoe_run_settings *s, dsmoe_run_options options, dsmoe_status status,
               const char *words);

/* One of several ranks of a run, a body for socket_peers_run. Its context is a run_crew. */
typedef struct run_crew {
    dsmoe_run_settings settings;
    dsmoe_parallel parallel;
} run_crew;
int run_rank(const dsmoe_peers *peers, void *crew);

/* The path of a run in the scratch folder; valid as long as that of tiny_path. */
const char *run_folder(const char *name);
void copy_path(char out[TINY_PATH], const char *folder, const char *name);
/* The last checkpoints of two runs must be the same in all bytes that matter. */
void assert_same_end(const char *a, const char *b);

#endif

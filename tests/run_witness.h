/* run_witness.h - runs for tests to look at: what they told, how they ended, and one that others are
 * compared with. */
#ifndef DSMOE_TESTS_RUN_WITNESS_H
#define DSMOE_TESTS_RUN_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tiny_run.h"

/* What a run told, and what it is to be told. */
typedef struct witness {
    int n_steps, n_evals, n_samples, n_checkpoints, n_skips, n_messages, n_starts;
    int64_t first_step, last_step, n_skipped, vocab_size, max_position_embeddings;
    double first_loss, last_loss, last_lr;
    double losses[16]; /* of the first steps */
    char message[2048], skip[256], changes[512];
    double aux_loss_alpha;
    int64_t stop_at; /* the step to stop after; 0: never */
    bool stop_at_once, stop_at_start, wants_end;
    int64_t stop_measuring_at; /* the step in whose evaluation to stop; 0: none */
} witness;

/* Set-up and tear-down: a fresh folder with a text, a configuration and an undisturbed run,
 * "straight". */
int make_straight_run(void **state);
int remove_straight_run(void **state);

/* Each watches a run; `w` may be NULL. */
dsmoe_status watch_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w,
                       dsmoe_run_result *result, dsmoe_error *error);
/* It must come to its end, or to stop_after. */
dsmoe_run_result must_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w);
dsmoe_run_result must_resume(const char *folder, int64_t stop_after, int n_threads, witness *w);
/* It must fail with one line that has these words. */
void must_fail(const dsmoe_run_settings *s, dsmoe_run_options options, dsmoe_status status,
               const char *words);

/* One of several ranks of a run, as socket_peers_run takes it: the context is a run_crew. */
typedef struct run_crew {
    dsmoe_run_settings settings;
    dsmoe_parallel parallel;
} run_crew;
int run_rank(const dsmoe_peers *peers, void *crew);

/* The path of a run in the folder; see tiny_path for how long it lasts. */
const char *run_folder(const char *name);
void copy_path(char out[TINY_PATH], const char *folder, const char *name);
/* The last checkpoints of two runs are the same, all bytes that count. */
void assert_same_end(const char *a, const char *b);

#endif

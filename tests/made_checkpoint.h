/* made_checkpoint.h - a run's folder with checkpoints of a small trainer, for tests of the files and of
 * the folder. */
#ifndef DSMOE_TESTS_MADE_CHECKPOINT_H
#define DSMOE_TESTS_MADE_CHECKPOINT_H

#include <stdbool.h>

#include "tiny_run.h"
#include "train/checkpoint.h"

extern char run[300]; /* the folder; the first checkpoint creates it */
/* The target of the link "latest" when the folder was last synced: what remains after a power loss.
 * Nothing is really synced: link with --wrap=fsync. */
extern char synced_link[256];

/* Set-up and tear-down of a group of tests. */
int make_run(void **state);
int remove_run(void **state);

/* A trainer with random weights and moments that has made a step. */
dsmoe_trainer *make_trainer(uint64_t seed);
/* A state with a different value in each field. */
checkpoint_state make_state(int64_t step);

/* Each writes a checkpoint and returns its path, valid until the next call. */
const char *write_as(dsmoe_trainer *t, int64_t step, checkpoint_options options);
const char *write_step(dsmoe_trainer *t, int64_t step);

bool has_step(int64_t step);
/* Calls checkpoint_prune; fails the test on an error. */
void prune(int64_t keep, int64_t best_step);
void assert_link(const char *name, const char *target);

#endif

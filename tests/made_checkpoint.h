/* made_checkpoint.h - a run's folder with checkpoints of a small trainer, for tests of their form and of the folder. */
#ifndef DSMOE_TESTS_MADE_CHECKPOINT_H
#define DSMOE_TESTS_MADE_CHECKPOINT_H

#include <stdbool.h>

#include "tiny_run.h"
#include "train/checkpoint.h"

extern char run[300]; /* the folder, which the first checkpoint makes */
/* The link "latest" that the folder had when it was last synced: what is found after a power loss. Nothing is really
 * synced: link with --wrap=fsync. */
extern char synced_link[256];

/* Set-up and tear-down of a group of tests. */
int make_run(void **state);
int remove_run(void **state);

/* One that has made a step, with random weights and moments. */
dsmoe_trainer *make_trainer(uint64_t seed);
/* With a value in each field that no other has. */
checkpoint_state make_state(int64_t step);

/* The path of what was written, until the next call. */
const char *write_as(dsmoe_trainer *t, int64_t step, checkpoint_options options);
const char *write_step(dsmoe_trainer *t, int64_t step);

bool has_step(int64_t step);
/* checkpoint_prune; fails the test on an error. */
void prune(int64_t keep, int64_t best_step);
void assert_link(const char *name, const char *target);

#endif

/* made_trainer.h - a trainer over the weights of a made model, and batches for it. */
#ifndef DSMOE_TESTS_MADE_TRAINER_H
#define DSMOE_TESTS_MADE_TRAINER_H

#include "made_model.h"

/* AdamW as the paper has it, one thread. */
dsmoe_trainer_options made_options(int64_t n_sequences, int64_t sequence_length);

/* Fails the test if there is none. */
dsmoe_trainer *made_trainer(const made_model *model, const dsmoe_trainer_options *options);
/* A fresh one with the numbers of a seed. */
dsmoe_trainer *fresh_trainer(const dsmoe_config *config, const dsmoe_trainer_options *options,
                             uint64_t seed);

size_t trainer_tensors(const dsmoe_trainer *trainer); /* how many */
const char *trainer_name(const dsmoe_trainer *trainer, size_t index);
int64_t trainer_count(const dsmoe_trainer *trainer, size_t index); /* a tensor's numbers */
/* The place of a tensor; fails the test if there is none. */
size_t trainer_find(const dsmoe_trainer *trainer, const char *name);
/* Its weights, to be changed. */
float *trainer_weight(dsmoe_trainer *trainer, const char *name);

/* Of all gradients as they are, batches added up. */
double gradient_norm(const dsmoe_trainer *trainer);
/* The same weights and gradients, bit for bit. */
void assert_same_trainers(const dsmoe_trainer *a, const dsmoe_trainer *b);

/* Random tokens, and for each the one after it as its target, none for a sequence's last. */
typedef struct made_batch {
    int64_t n;
    int32_t *tokens, *targets;
} made_batch;
made_batch made_batch_create(const dsmoe_config *config, const dsmoe_trainer_options *options,
                             uint64_t seed);
void made_batch_free(made_batch *batch);

/* Each fails the test on an error. */
dsmoe_batch_losses run_batch(dsmoe_trainer *trainer, const made_batch *batch);
dsmoe_update run_update(dsmoe_trainer *trainer, double lr);

#endif

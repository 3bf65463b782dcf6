/* made_trainer.h - a trainer over the weights of a made model, and batches for it. */
#ifndef DSMOE_TESTS_MADE_TRAINER_H
#define DSMOE_TESTS_MADE_TRAINER_H

#include "made_model.h"

/* AdamW as in the paper, one thread. */
dsmoe_trainer_options made_options(int64_t n_sequences, int64_t sequence_length);

/* Fails the test if it cannot be created. */
dsmoe_trainer *made_trainer(const made_model *model, const dsmoe_trainer_options *options);
/* A new trainer with random weights from a seed. */
dsmoe_trainer *fresh_trainer(const dsmoe_config *config, const dsmoe_trainer_options *options,
                             uint64_t seed);

size_t trainer_tensors(const dsmoe_trainer *trainer); /* the number of tensors */
const char *trainer_name(const dsmoe_trainer *trainer, size_t index);
int64_t trainer_count(const dsmoe_trainer *trainer, size_t index); /* of values in a tensor */
/* The index of a tensor; fails the test if there is none with that name. */
size_t trainer_find(const dsmoe_trainer *trainer, const char *name);
/* A tensor's weights; the test may change them. */
float *trainer_weight(dsmoe_trainer *trainer, const char *name);

/* The norm of all gradients, as accumulated so far. */
double gradient_norm(const dsmoe_trainer *trainer);
/* Weights and gradients must be the same, bit for bit. */
void assert_same_trainers(const dsmoe_trainer *a, const dsmoe_trainer *b);

/* Random tokens. The target of each token is the next one; the last token of a sequence has none. */
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

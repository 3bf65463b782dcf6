/* made_trainer.c - a trainer over the weights of a made model, and batches for it. */
#include "made_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

dsmoe_trainer_options made_options(int64_t n_sequences, int64_t sequence_length)
{
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = n_sequences;
    options.sequence_length = sequence_length;
    options.n_threads = 1;
    return options;
}

static dsmoe_trainer *create(const dsmoe_config *config, const dsmoe_trainer_options *options)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    must(dsmoe_trainer_create(config, options, &trainer, &error), &error, "a trainer");
    return trainer;
}

dsmoe_trainer *made_trainer(const made_model *model, const dsmoe_trainer_options *options)
{
    dsmoe_trainer *trainer = create(&model->config, options);
    for (int i = 0; i < model->n_tensors; i++) {
        const made_tensor *t = &model->tensors[i];
        assert_int_equal(trainer_count(trainer, trainer_find(trainer, t->name)), t->n);
        memcpy(trainer_weight(trainer, t->name), t->data, (size_t)t->n * sizeof *t->data);
    }
    return trainer;
}

dsmoe_trainer *fresh_trainer(const dsmoe_config *config, const dsmoe_trainer_options *options,
                             uint64_t seed)
{
    dsmoe_trainer *trainer = create(config, options);
    dsmoe_trainer_init(trainer, seed);
    return trainer;
}

size_t trainer_tensors(const dsmoe_trainer *trainer)
{
    return dsmoe_model_tensor_count(dsmoe_trainer_model(trainer));
}

const char *trainer_name(const dsmoe_trainer *trainer, size_t index)
{
    return dsmoe_model_tensor(dsmoe_trainer_model(trainer), index).name;
}

size_t trainer_find(const dsmoe_trainer *trainer, const char *name)
{
    for (size_t i = 0; i < trainer_tensors(trainer); i++)
        if (!strcmp(trainer_name(trainer, i), name)) return i;
    fail_msg("the trainer has no %s", name);
    return 0;
}

int64_t trainer_count(const dsmoe_trainer *trainer, size_t index)
{
    dsmoe_tensor_info info = dsmoe_model_tensor(dsmoe_trainer_model(trainer), index);
    return info.n_dims == 2 ? info.shape[0] * info.shape[1] : info.shape[0];
}

float *trainer_weight(dsmoe_trainer *trainer, const char *name)
{
    return (float *)dsmoe_trainer_weight(trainer, trainer_find(trainer, name));
}

double gradient_norm(const dsmoe_trainer *trainer)
{
    double sum = 0;
    for (size_t i = 0; i < trainer_tensors(trainer); i++)
        for (int64_t j = 0; j < trainer_count(trainer, i); j++)
            sum += pow(dsmoe_trainer_gradient(trainer, i)[j], 2);
    return sqrt(sum);
}

void assert_same_trainers(const dsmoe_trainer *a, const dsmoe_trainer *b)
{
    assert_int_equal(trainer_tensors(a), trainer_tensors(b));
    for (size_t i = 0; i < trainer_tensors(a); i++) {
        size_t n = (size_t)trainer_count(a, i);
        assert_same_bits(dsmoe_trainer_weight(a, i), dsmoe_trainer_weight(b, i), n,
                         trainer_name(a, i));
        assert_same_bits(dsmoe_trainer_gradient(a, i), dsmoe_trainer_gradient(b, i), n,
                         trainer_name(a, i));
    }
}

made_batch made_batch_create(const dsmoe_config *config, const dsmoe_trainer_options *options,
                             uint64_t seed)
{
    made_batch b = {.n = options->n_sequences * options->sequence_length};
    made_model vocabulary = {.config = *config};
    b.tokens = malloc((size_t)b.n * sizeof *b.tokens);
    b.targets = malloc((size_t)b.n * sizeof *b.targets);
    assert_true(b.tokens && b.targets);
    made_tokens(&vocabulary, b.tokens, b.n, seed);
    for (int64_t i = 0; i < b.n; i++)
        b.targets[i] = (i + 1) % options->sequence_length ? b.tokens[i + 1] : -1;
    return b;
}

void made_batch_free(made_batch *batch)
{
    free(batch->tokens);
    free(batch->targets);
}

dsmoe_batch_losses run_batch(dsmoe_trainer *trainer, const made_batch *batch)
{
    dsmoe_error error = {0};
    dsmoe_batch_losses losses;
    must(dsmoe_trainer_backward(trainer,
                                &(dsmoe_batch){.tokens = batch->tokens, .targets = batch->targets},
                                &losses, &error),
         &error, "a batch");
    return losses;
}

dsmoe_update run_update(dsmoe_trainer *trainer, double lr)
{
    dsmoe_error error = {0};
    dsmoe_update update;
    must(dsmoe_trainer_update(trainer, lr, &update, &error), &error, "an update");
    return update;
}

/* train.c - trains a small DeepSeekMoE with the library, step by step: it learns to count.
 *
 *   cc train.c $(pkg-config --cflags --libs dsmoe) -o train && ./train */
#include <dsmoe.h>
#include <stdio.h>

enum { SEQUENCES = 4, LENGTH = 16, VOCABULARY = 32, STEPS = 60 };

static int fail(const dsmoe_error *error)
{
    fprintf(stderr, "train: %s\n", error->message);
    return 1;
}

/* Sequences that count up from some number and wrap around. */
static void make_batch(int step, int32_t *tokens, int32_t *targets)
{
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = 0; i < LENGTH; i++) {
            tokens[s * LENGTH + i] = (step * 7 + s * 5 + i) % VOCABULARY;
            targets[s * LENGTH + i] = (tokens[s * LENGTH + i] + 1) % VOCABULARY;
        }
}

int main(void)
{
    dsmoe_error error;
    dsmoe_config config;
    if (dsmoe_config_preset("tiny", &config, &error)) return fail(&error);
    config.vocab_size = VOCABULARY;
    config.num_hidden_layers = 2;
    config.bos_token_id = config.eos_token_id = -1;

    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = SEQUENCES;
    options.sequence_length = LENGTH;
    dsmoe_trainer *trainer;
    if (dsmoe_trainer_create(&config, &options, &trainer, &error)) return fail(&error);
    dsmoe_trainer_init(trainer, 1);

    dsmoe_schedule schedule = {DSMOE_SCHEDULE_COSINE, 3e-3, 5, STEPS};
    dsmoe_batch_losses losses = {0};
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
        dsmoe_update update;
        make_batch(step, tokens, targets);
        const dsmoe_batch batch = {.tokens = tokens, .targets = targets};
        if (dsmoe_trainer_backward(trainer, &batch, &losses, &error) ||
            dsmoe_trainer_update(trainer, dsmoe_schedule_lr(&schedule, step), &update, &error))
            return fail(&error);
        if (step % 10 == 0 || step == STEPS - 1)
            printf("step %2d  loss %.4f  balance %.4f  gradient %.3f\n", step + 1, losses.loss,
                   losses.aux_loss, update.grad_norm);
    }
    dsmoe_trainer_free(trainer); /* until here an engine can run dsmoe_trainer_model() */
    return losses.loss < 0.1 ? 0 : 1;
}

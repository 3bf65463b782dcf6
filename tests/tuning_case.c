/* tuning_case.c - a base model and low-rank adapters for it. */
#include "tuning_case.h"

#include "support.h"

const double tuning_alpha = 5.0;
const char tuning_all_targets[] = "attention,shared,dense,routed";

dsmoe_model *tuning_open_base(const char *from)
{
    dsmoe_error error = {0};
    dsmoe_model *model;
    must(dsmoe_model_open(from, &model, &error), &error, "the base");
    return model;
}

dsmoe_trainer *tuning_create(const dsmoe_config *config, const dsmoe_trainer_options *options)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    must(dsmoe_trainer_create(config, options, &trainer, &error), &error, "a trainer");
    return trainer;
}

void tuning_make_lora(tuned *t, const char *from, const char *targets, int64_t n_sequences,
                      int64_t length)
{
    if (!t->owner) t->base = tuning_open_base(from);
    t->tuning = (dsmoe_tuning){.base = t->base,
                               .train = DSMOE_TRAIN_LORA,
                               .rank = TUNING_RANK,
                               .alpha = tuning_alpha,
                               .targets = targets};
    t->options = made_options(n_sequences, length);
    t->options.n_threads = 2;
    t->options.tuning = &t->tuning;
    t->trainer = tuning_create(dsmoe_model_config(t->base), &t->options);
    dsmoe_trainer_init(t->trainer, 5);
}

void tuning_fill_b(dsmoe_trainer *trainer)
{
    for (size_t i = 1; i < dsmoe_trainer_parameter_count(trainer); i += 2) {
        dsmoe_tensor_info b = dsmoe_trainer_parameter(trainer, i);
        fill_random((float *)dsmoe_trainer_weight(trainer, i), b.shape[0] * b.shape[1], 900 + i,
                    0.1);
    }
}

void tuning_free(tuned *t)
{
    dsmoe_trainer_free(t->trainer);
    if (!t->owner) dsmoe_model_free((dsmoe_model *)t->base);
    dsmoe_trainer_free(t->owner);
}

dsmoe_config tuning_config(void)
{
    dsmoe_config c = made_config();
    c.aux_loss_alpha = 0.1;
    return c;
}

dsmoe_config tuning_block_config(void)
{
    dsmoe_config c = made_config();
    c.hidden_size = 256;
    c.num_attention_heads = c.num_key_value_heads = 4;
    c.intermediate_size = 512;
    c.moe_intermediate_size = 256;
    return c;
}

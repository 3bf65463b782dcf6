/* test_trainer_hostile.c - what must not break a trainer: NaN and infinity in weights and gradients;
 * tokens that do not exist; options and sizes that cannot work. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_trainer.h"
#include "train/trainer.h"

static void assert_says(const dsmoe_error *error, dsmoe_status status, const char *says)
{
    assert_int_equal(error->status, status);
    if (!strstr(error->message, says) || strchr(error->message, '\n'))
        fail_msg("'%s' does not say '%s'", error->message, says);
}

/* ---- NaN and infinity ---------------------------------------------------------------------------- */

/* Copies of weights and moments, to be compared later. */
typedef struct memento {
    float *rows[3];
    size_t size;
    int64_t n_updates;
} memento;

static memento remember(const dsmoe_trainer *t)
{
    const float *const from[] = {t->weights, t->first_moment, t->second_moment};
    memento m = {.size = (size_t)t->n_numbers * sizeof(float), .n_updates = t->n_updates};
    for (int i = 0; i < 3; i++) {
        m.rows[i] = malloc(m.size);
        assert_non_null(m.rows[i]);
        memcpy(m.rows[i], from[i], m.size);
    }
    return m;
}

static void assert_unchanged(const dsmoe_trainer *t, memento *m)
{
    assert_memory_equal(t->weights, m->rows[0], m->size);
    assert_memory_equal(t->first_moment, m->rows[1], m->size);
    assert_memory_equal(t->second_moment, m->rows[2], m->size);
    assert_int_equal(t->n_updates, m->n_updates);
    for (int i = 0; i < 3; i++) free(m->rows[i]);
}

typedef struct broken_run {
    dsmoe_config config;
    dsmoe_trainer_options options;
    made_batch batch;
    dsmoe_trainer *trainer, *whole; /* `whole` gets only good batches */
} broken_run;

static broken_run start_run(void)
{
    broken_run run = {.config = made_config(), .options = made_options(2, 9)};
    run.config.attention_bias = true;
    run.options.n_threads = 2;
    run.batch = made_batch_create(&run.config, &run.options, 1);
    run.trainer = fresh_trainer(&run.config, &run.options, 2);
    run.whole = fresh_trainer(&run.config, &run.options, 2);
    return run;
}

static void step_both(broken_run *run)
{
    dsmoe_trainer *const both[] = {run->trainer, run->whole};
    for (int i = 0; i < 2; i++) {
        run_batch(both[i], &run->batch);
        assert_false(run_update(both[i], 1e-3).skipped);
    }
    assert_same_trainers(run->trainer, run->whole);
}

static void end_run(broken_run *run)
{
    made_batch_free(&run->batch);
    dsmoe_trainer_free(run->trainer);
    dsmoe_trainer_free(run->whole);
}

/* A batch that must not count: either it fails, or the next update finds that the gradient is not
 * finite. */
static void run_bad_batch(dsmoe_trainer *trainer, const made_batch *batch, const char *what)
{
    dsmoe_error error = {0};
    dsmoe_batch_losses losses;
    dsmoe_status status = dsmoe_trainer_backward(
        trainer, &(dsmoe_batch){.tokens = batch->tokens, .targets = batch->targets}, &losses,
        &error);
    if (status == DSMOE_OK) return;
    if (status != DSMOE_ERROR_NONFINITE || !error.message[0])
        fail_msg("%s: status %d, '%s'", what, status, error.message);
    assert_false(isfinite(losses.loss));
}

/* Weights of every kind are broken and repaired. After that training continues as if nothing had
 * happened. */
static void test_broken_weights(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.bias",
        "model.layers.2.self_attn.v_proj.weight",
        "model.layers.1.self_attn.o_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.gate.weight",
        "model.layers.2.mlp.gate.weight",
        "model.layers.2.mlp.shared_experts.down_proj.weight",
        "model.layers.2.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    };
    static const float values[] = {NAN, INFINITY, -INFINITY};
    broken_run run = start_run();
    step_both(&run);
    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t v = 0; v < COUNT(values); v++) {
            float *weight = trainer_weight(run.trainer, names[i]), good = *weight;
            if (i == 0) weight += run.batch.tokens[0] * run.config.hidden_size;
            good = *weight;
            *weight = values[v];
            memento before = remember(run.trainer);
            run_bad_batch(run.trainer, &run.batch, names[i]);
            dsmoe_update update = run_update(run.trainer, 1e-3);
            if (!update.skipped || isfinite(update.grad_norm))
                fail_msg("%s: %g is not noticed", names[i], (double)values[v]);
            assert_unchanged(run.trainer, &before);
            *weight = good;
            step_both(&run);
        }
    end_run(&run);
}

/* An infinite router weight is an error that names its layer. */
static void test_broken_router(void **state)
{
    (void)state;
    broken_run run = start_run();
    dsmoe_error error = {0};
    float *weight = trainer_weight(run.trainer, "model.layers.2.mlp.gate.weight"), good = *weight;
    *weight = INFINITY;
    assert_int_equal(dsmoe_trainer_backward(
                         run.trainer,
                         &(dsmoe_batch){.tokens = run.batch.tokens, .targets = run.batch.targets},
                         NULL, &error),
                     DSMOE_ERROR_NONFINITE);
    assert_says(&error, DSMOE_ERROR_NONFINITE, "layer 2");
    assert_int_equal(dsmoe_trainer_backward(
                         run.trainer,
                         &(dsmoe_batch){.tokens = run.batch.tokens, .targets = run.batch.targets},
                         NULL, NULL),
                     DSMOE_ERROR_NONFINITE);
    *weight = good;
    run_batch(run.trainer, &run.batch); /* a good batch does not repair the bad ones */
    memento before = remember(run.trainer);
    assert_true(run_update(run.trainer, 1e-3).skipped);
    assert_unchanged(run.trainer, &before);
    step_both(&run);
    end_run(&run);
}

/* A good batch, and then one that fails before it changes a gradient. */
static void test_broken_second_batch(void **state)
{
    (void)state;
    broken_run run = start_run();
    run_batch(run.trainer, &run.batch);
    float *weight = trainer_weight(run.trainer, "model.layers.2.mlp.gate.weight"), good = *weight;
    *weight = NAN;
    run_bad_batch(run.trainer, &run.batch, "a router");
    *weight = good;
    memento before = remember(run.trainer);
    assert_true(run_update(run.trainer, 1e-3).skipped);
    assert_unchanged(run.trainer, &before);
    step_both(&run);
    end_run(&run);
}

/* The loss is finite, but the gradient is not. */
static void test_broken_gradient(void **state)
{
    (void)state;
    broken_run run = start_run();
    run_batch(run.trainer, &run.batch);
    run.trainer->gradients[run.trainer->n_numbers / 2] = INFINITY;
    memento before = remember(run.trainer);
    dsmoe_update update = run_update(run.trainer, 1e-3);
    assert_true(update.skipped && isinf(update.grad_norm));
    assert_unchanged(run.trainer, &before);
    run_batch(run.trainer, &run.batch);
    run.trainer->gradients[0] = NAN;
    before = remember(run.trainer);
    update = run_update(run.trainer, 1e-3);
    assert_true(update.skipped && isnan(update.grad_norm));
    assert_unchanged(run.trainer, &before);
    run_batch(run.trainer, &run.batch); /* large but finite, also its norm */
    run.trainer->gradients[0] = FLT_MAX;
    update = run_update(run.trainer, 1e-3);
    assert_true(!update.skipped && fabs(update.grad_norm - FLT_MAX) < 1e-6 * FLT_MAX);
    end_run(&run);
}

/* ---- invalid calls --------------------------------------------------------------------------------- */

static void test_tokens(void **state)
{
    (void)state;
    broken_run run = start_run();
    const int32_t vocab = (int32_t)run.config.vocab_size,
                  wrong[] = {-1, vocab, INT32_MAX, INT32_MIN};
    dsmoe_error error = {0};
    for (size_t i = 0; i < COUNT(wrong); i++)
        for (int targets = 0; targets < 2; targets++) {
            int32_t *at = (targets ? run.batch.targets : run.batch.tokens) + 17, good = *at;
            char says[64];
            *at = wrong[i] == -1 && targets ? -2 : wrong[i];
            snprintf(says, sizeof says, "%s 17 is %d", targets ? "target" : "token", (int)*at);
            assert_int_equal(dsmoe_trainer_backward(run.trainer,
                                                    &(dsmoe_batch){.tokens = run.batch.tokens,
                                                                   .targets = run.batch.targets},
                                                    NULL, &error),
                             DSMOE_ERROR_ARGUMENT);
            assert_says(&error, DSMOE_ERROR_ARGUMENT, says);
            *at = good;
        }
    /* There was no batch before. */
    assert_int_equal(dsmoe_trainer_update(run.trainer, 1e-3, NULL, &error), DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "batch");
    step_both(&run);
    end_run(&run);
}

static void test_calls(void **state)
{
    (void)state;
    static const double rates[] = {NAN, INFINITY, -INFINITY, -1e-3};
    broken_run run = start_run();
    const int32_t *tokens = run.batch.tokens, *targets = run.batch.targets;
    dsmoe_error error = {0};
    const dsmoe_status argument = DSMOE_ERROR_ARGUMENT;
    dsmoe_trainer *none = run.trainer;
    assert_int_equal(dsmoe_trainer_create(NULL, &run.options, &none, &error), argument);
    assert_int_equal(dsmoe_trainer_create(&run.config, NULL, &none, &error), argument);
    assert_int_equal(dsmoe_trainer_create(&run.config, &run.options, NULL, &error), argument);
    const dsmoe_batch whole = {.tokens = tokens, .targets = targets};
    const dsmoe_batch parts[] = {{.targets = targets}, {.tokens = tokens}, {0}};
    assert_int_equal(dsmoe_trainer_backward(NULL, &whole, NULL, &error), argument);
    assert_int_equal(dsmoe_trainer_backward(run.trainer, NULL, NULL, &error), argument);
    for (size_t i = 0; i < COUNT(parts); i++)
        assert_int_equal(dsmoe_trainer_backward(run.trainer, &parts[i], NULL, &error), argument);
    assert_int_equal(dsmoe_trainer_update(NULL, 1e-3, NULL, &error), argument);
    assert_int_equal(dsmoe_trainer_memory_size(NULL, &run.options).weights, 0);
    assert_int_equal(dsmoe_trainer_memory_size(&run.config, NULL).weights, 0);
    dsmoe_trainer_free(NULL);
    run_batch(run.trainer, &run.batch);
    run_batch(run.whole, &run.batch);
    for (size_t i = 0; i < COUNT(rates); i++) {
        assert_int_equal(dsmoe_trainer_update(run.trainer, rates[i], NULL, &error), argument);
        assert_says(&error, argument, "learning rate");
    }
    run_update(run.trainer, 1e-3); /* the batch was not lost */
    run_update(run.whole, 1e-3);
    assert_same_trainers(run.trainer, run.whole);
    end_run(&run);
}

/* ---- options and sizes ------------------------------------------------------------------------------ */

static void assert_impossible(const dsmoe_config *config, const dsmoe_trainer_options *options,
                              dsmoe_status status, const char *says)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer = (dsmoe_trainer *)&error;
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(config, options);
    if (m.weights || m.gradients || m.moments || m.activations || m.workspace)
        fail_msg("%s: there are sizes", says);
    if (dsmoe_trainer_create(config, options, &trainer, &error) == DSMOE_OK)
        fail_msg("accepted: %s", says);
    assert_null(trainer);
    assert_says(&error, status, says);
}

enum { SEQUENCES, LENGTH, BETA1, BETA2, EPS, DECAY, CLIP, GROUPS, ALPHA, THREADS };
static const struct {
    int which;
    double value;
    const char *says;
} wrong_options[] = {
    {SEQUENCES, 0, "a batch of 0 x 5"},
    {SEQUENCES, -1, "a batch of -1 x 5"},
    {SEQUENCES, 0x1p62, "impossible"},
    {LENGTH, 0, "a batch of 2 x 0"},
    {LENGTH, -0x1p40, "impossible"},
    {LENGTH, 0x1p24, "impossible"}, /* both have this limit */
    {BETA1, 1, "betas 1"},
    {BETA1, -0.1, "betas"},
    {BETA1, NAN, "betas nan"},
    {BETA2, 1, "and 1,"},
    {BETA2, NAN, "and nan"},
    {BETA2, INFINITY, "and inf"},
    {EPS, 0, "eps 0"},
    {EPS, -1e-8, "eps"},
    {EPS, NAN, "eps nan"},
    {EPS, INFINITY, "eps inf"},
    {EPS, 1e-60, "eps 1e-60"},        /* 0 in float32 */
    {BETA2, 0.99999999999, "and 1,"}, /* 1 in float32 */
    {ALPHA, INFINITY, "factor inf"},
    {DECAY, -0.1, "decay"},
    {DECAY, NAN, "decay nan"},
    {CLIP, -1, "clipping"},
    {CLIP, NAN, "clipping nan"},
    {GROUPS, -1, "-1 device groups"},
    {GROUPS, 2, "2 device groups"}, /* does not divide 7 experts */
    {GROUPS, 14, "14 device groups"},
    {ALPHA, -1, "factor -1"},
    {ALPHA, NAN, "factor nan"},
    {THREADS, -1, "not -1"},
    {THREADS, 1025, "not 1025"},
};

static void set_option(dsmoe_trainer_options *o, int which, double value)
{
    switch (which) {
    case SEQUENCES: o->n_sequences = (int64_t)value; break;
    case LENGTH: o->sequence_length = (int64_t)value; break;
    case BETA1: o->beta1 = value; break;
    case BETA2: o->beta2 = value; break;
    case EPS: o->eps = value; break;
    case DECAY: o->weight_decay = value; break;
    case CLIP: o->clip_norm = value; break;
    case GROUPS: o->n_device_groups = (int64_t)value; break;
    case ALPHA: o->device_loss_alpha = value; break;
    case THREADS: o->n_threads = (int)value; break;
    }
}

static void test_options(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    for (size_t i = 0; i < COUNT(wrong_options); i++) {
        dsmoe_trainer_options o = made_options(2, 5);
        set_option(&o, wrong_options[i].which, wrong_options[i].value);
        assert_impossible(&config, &o, DSMOE_ERROR_ARGUMENT, wrong_options[i].says);
    }
    dsmoe_trainer_options all = made_options(2, 5);
    all.n_threads = 0; /* all processors */
    dsmoe_trainer *trainer = fresh_trainer(&config, &all, 1);
    dsmoe_trainer_free(trainer);
}

static void test_configurations(void **state)
{
    (void)state;
    dsmoe_trainer_options options = made_options(2, 5);
    dsmoe_config c = made_config();
    c.num_attention_heads = 4;
    assert_impossible(&c, &options, DSMOE_ERROR_CONFIG, "num_attention_heads");
    c = made_config();
    c.num_experts_per_tok = 8;
    assert_impossible(&c, &options, DSMOE_ERROR_CONFIG, "num_experts_per_tok");
    c = made_config();
    c.aux_loss_alpha = NAN;
    assert_impossible(&c, &options, DSMOE_ERROR_CONFIG, "aux_loss_alpha");
    c = made_config();
    c.vocab_size = (int64_t)1 << 62;
    assert_impossible(&c, &options, DSMOE_ERROR_CONFIG, "vocab_size");
    c = made_config();
    c.hidden_size = c.intermediate_size = (int64_t)1 << 24;
    c.num_hidden_layers = 1 << 16;
    c.num_attention_heads = c.num_key_value_heads = 1 << 20;
    assert_impossible(&c, &options, DSMOE_ERROR_CONFIG, "2^58");
}

/* Sizes that can be requested but not allocated. Nothing large is touched before that is known. */
static void test_sizes(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    dsmoe_trainer_options options = made_options(1 << 12, 1 << 12);
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    config.n_routed_experts = config.num_experts_per_tok = 128; /* rows beyond 32 bits */
    config.moe_intermediate_size = 1;
    assert_impossible(&config, &options, DSMOE_ERROR_MEMORY, "memory");
    config = made_config(); /* 2^47 bytes of weights and more */
    config.hidden_size = 1 << 22;
    config.num_attention_heads = config.num_key_value_heads = 1 << 10;
    config.intermediate_size = 1 << 22;
    config.vocab_size = 1 << 24;
    options = made_options(1, 1);
    dsmoe_trainer_memory size = dsmoe_trainer_memory_size(&config, &options);
    assert_true(size.weights > (size_t)1 << 47 && size.gradients > size.weights);
    assert_true(size.moments == 2 * size.weights && size.activations > 0 && size.workspace > 0);
    assert_int_equal(dsmoe_trainer_create(&config, &options, &trainer, &error), DSMOE_ERROR_MEMORY);
    assert_null(trainer);
    assert_says(&error, DSMOE_ERROR_MEMORY, "GB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_weights),
        cmocka_unit_test(test_broken_router),
        cmocka_unit_test(test_broken_second_batch),
        cmocka_unit_test(test_broken_gradient),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

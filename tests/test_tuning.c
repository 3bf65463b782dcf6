/* test_tuning.c - training a part of a model: chosen experts, adapters for frozen weights of several
 * types, and the same bits for any number of threads and whether layers are kept or recomputed. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"
#include "made_gguf.h"
#include "model/gguf_names.h"
#include "scratch.h"
#include "tuning_case.h"

/* ---- chosen experts ---------------------------------------------------------------------------- */

/* The gradients must equal those of a trainer of the whole model, which test_train_gradients.c checks. */
static void test_experts(void **state)
{
    (void)state;
    dsmoe_config config = tuning_config();
    made_model model = made_model_create(&config, "F32", 41);
    made_model_write(&model, directory, false);
    tuned t = {.base = tuning_open_base(directory), .options = made_options(2, 9)};
    unsigned char *chosen = calloc((size_t)(config.num_hidden_layers * config.n_routed_experts), 1);
    chosen[1 * config.n_routed_experts + 2] = 1;
    chosen[2 * config.n_routed_experts + 0] = 1;
    chosen[2 * config.n_routed_experts + 3] = 1;
    t.tuning = (dsmoe_tuning){.base = t.base, .train = DSMOE_TRAIN_EXPERTS, .experts = chosen};
    dsmoe_trainer_options whole = t.options;
    t.options.tuning = &t.tuning;
    t.trainer = tuning_create(&config, &t.options);
    dsmoe_error error = {0};
    must(dsmoe_trainer_load(t.trainer, t.base, &error), &error, "the experts");
    dsmoe_trainer *all = made_trainer(&model, &whole);
    made_batch batch = made_batch_create(&config, &whole, 7);
    for (int step = 0; step < 2; step++) { /* the second batch is added */
        dsmoe_batch_losses a = run_batch(all, &batch), b = run_batch(t.trainer, &batch);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    }
    assert_int_equal(dsmoe_trainer_parameter_count(t.trainer), 9);
    for (size_t i = 0; i < 9; i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(t.trainer, i);
        size_t same = trainer_find(all, p.name);
        assert_same_bits(dsmoe_trainer_gradient(t.trainer, i), dsmoe_trainer_gradient(all, same),
                         (size_t)(p.shape[0] * p.shape[1]), p.name);
    }
    run_update(t.trainer, 1e-3);
    assert_true(run_batch(t.trainer, &batch).loss < run_batch(all, &batch).loss);
    made_batch_free(&batch);
    dsmoe_trainer_free(all);
    tuning_free(&t);
    free(chosen);
    made_model_remove(directory);
    made_model_free(&model);
}

/* ---- frozen weights of other types --------------------------------------------------------------- */

/* Rounds all matrices except routers to the type. */
static void round_to(made_model *model, dsmoe_dtype type)
{
    unsigned char *row = malloc(1 << 16);
    for (int i = 0; i < model->n_tensors; i++) {
        made_tensor *t = &model->tensors[i];
        if (t->n_dims != 2 || strstr(t->name, "mlp.gate.")) continue;
        for (int64_t r = 0; r < t->shape[0]; r++) {
            float *numbers = t->data + r * t->shape[1];
            quantize_row(type, t->shape[1], numbers, NULL, row);
            kernels_scalar.dtypes[type].widen(t->shape[1], row, numbers);
        }
    }
    free(row);
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa == 0 && bb == 0 ? 1 : ab / sqrt(aa * bb);
}

/* The gradients are those for the same weights in float32, except that forward quantises x. */
static void check_type(dsmoe_dtype type, double least)
{
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 51);
    round_to(&model, type);
    made_gguf_options as_type = {.type = type, .has_type = true},
                      as_f32 = {.type = DSMOE_F32, .has_type = true};
    tuned t[2] = {{0}};
    made_batch batch;
    for (int i = 0; i < 2; i++) {
        made_gguf_write(&model, made_file, i ? &as_type : &as_f32);
        tuning_make_lora(&t[i], made_file, tuning_all_targets, 1, 40);
        tuning_fill_b(t[i].trainer);
        if (i == 0) batch = made_batch_create(&config, &t[0].options, 3);
        dsmoe_batch_losses losses = run_batch(t[i].trainer, &batch);
        assert_true(isfinite(losses.loss));
    }
    double worst = 1;
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t[0].trainer); i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(t[0].trainer, i);
        if (strstr(p.name, ".experts.")) continue; /* close choices may differ */
        double c = cosine(dsmoe_trainer_gradient(t[0].trainer, i),
                          dsmoe_trainer_gradient(t[1].trainer, i), p.shape[0] * p.shape[1]);
        worst = fmin(worst, c);
    }
    if (!(worst > least)) fail_msg("type %d: a gradient turns by a cosine of %g", type, worst);
    for (int i = 0; i < 2; i++) tuning_free(&t[i]);
    made_batch_free(&batch);
    made_model_free(&model);
}

static void test_types(void **state)
{
    (void)state;
    check_type(DSMOE_F16, 0.999999);
    check_type(DSMOE_BF16, 0.999999);
    check_type(DSMOE_Q8_0, 0.99);
    check_type(DSMOE_Q5_0, 0.98);
    check_type(DSMOE_Q4_K, 0.98);
    check_type(DSMOE_Q6_K, 0.98);
}

/* The rows of q and k are in another order in a GGUF file, and so are those of B. */
static void test_rope_pairs(void **state)
{
    (void)state;
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 52);
    made_model_write(&model, directory, false);
    made_gguf_write(&model, made_file, NULL);
    tuned a = {0}, b = {0};
    tuning_make_lora(&a, directory, "attention", 1, 20);
    tuning_make_lora(&b, made_file, "attention", 1, 20);
    made_batch batch = made_batch_create(&config, &a.options, 3);
    run_batch(a.trainer, &batch);
    run_batch(b.trainer, &batch);
    for (size_t i = 1; i < dsmoe_trainer_parameter_count(a.trainer); i += 2) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(a.trainer, i);
        const float *ours = dsmoe_trainer_gradient(b.trainer, i),
                    *usual = dsmoe_trainer_gradient(a.trainer, i);
        bool turned = strstr(p.name, "q_proj") || strstr(p.name, "k_proj");
        for (int64_t r = 0; r < p.shape[0]; r++) {
            int64_t from = turned ? gguf_source_row(256 / 4, r) : r;
            for (int64_t j = 0; j < TUNING_RANK; j++)
                assert_true(fabsf(ours[r * TUNING_RANK + j] - usual[from * TUNING_RANK + j]) <
                            1e-5f);
        }
    }
    made_batch_free(&batch);
    tuning_free(&a);
    tuning_free(&b);
    made_model_remove(directory);
    made_model_free(&model);
}

/* ---- bits ---------------------------------------------------------------------------------------- */

/* With B = 0, as at the start, the model equals the base model bit for bit. */
static void test_zeros(void **state)
{
    (void)state;
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 53);
    made_model_write(&model, directory, false);
    tuned lora = {0};
    tuning_make_lora(&lora, directory, tuning_all_targets, 1, 33);
    dsmoe_trainer_options whole = lora.options;
    whole.tuning = NULL;
    dsmoe_trainer *base = made_trainer(&model, &whole);
    made_batch batch = made_batch_create(&config, &whole, 3);
    double with = run_batch(lora.trainer, &batch).loss, without = run_batch(base, &batch).loss;
    assert_memory_equal(&with, &without, sizeof with);
    tuning_fill_b(lora.trainer);
    assert_true(run_batch(lora.trainer, &batch).loss != with);
    dsmoe_trainer_free(base);
    made_batch_free(&batch);
    tuning_free(&lora);
    made_model_remove(directory);
    made_model_free(&model);
}

/* Logits of a model after a prompt and after one more token. */
static float *logits_of(const dsmoe_model *model, const made_batch *batch, int64_t n)
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    const dsmoe_engine_options options = {.n_ctx = n, .n_threads = 2};
    int64_t vocab_size = dsmoe_model_config(model)->vocab_size;
    float *logits = malloc(2 * (size_t)vocab_size * sizeof *logits);
    assert_non_null(logits);
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    must(dsmoe_sequence_append(sequence, batch->tokens, n - 1, logits, &error), &error, "a prompt");
    must(dsmoe_sequence_append(sequence, batch->tokens + n - 1, 1, logits + vocab_size, &error),
         &error, "a token");
    dsmoe_engine_free(engine);
    return logits;
}

/* The same for quantised files with all matrices adapted: the logits are those of the base model, and the
 * training loss does not depend on what is adapted. */
static void check_quantised_zeros(dsmoe_dtype type)
{
    enum { LENGTH = 40 };
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 56);
    made_gguf_options as_type = {.type = type, .has_type = true};
    made_gguf_write(&model, made_file, &as_type);
    tuned all = {0}, one = {0};
    tuning_make_lora(&all, made_file, tuning_all_targets, 1, LENGTH);
    tuning_make_lora(&one, made_file, "layers.2.self_attn.o_proj", 1, LENGTH);
    made_batch batch = made_batch_create(&config, &all.options, 3);
    float *base = logits_of(all.base, &batch, LENGTH);
    const dsmoe_model *adapted = dsmoe_trainer_model(all.trainer);
    float *zeros = logits_of(adapted, &batch, LENGTH);
    size_t n = 2 * (size_t)config.vocab_size;
    assert_same_bits(base, zeros, n, "zeros over a quantised model");
    double of_all = run_batch(all.trainer, &batch).loss,
           of_one = run_batch(one.trainer, &batch).loss;
    assert_memory_equal(&of_all, &of_one, sizeof of_all);
    free(zeros);
    tuning_fill_b(all.trainer);
    zeros = logits_of(adapted, &batch, LENGTH);
    assert_true(memcmp(base, zeros, n * sizeof *base) != 0);
    assert_true(run_batch(all.trainer, &batch).loss != of_all);
    free(base);
    free(zeros);
    made_batch_free(&batch);
    tuning_free(&all);
    tuning_free(&one);
    made_model_free(&model);
}

static void test_quantised_zeros(void **state)
{
    (void)state;
    static const dsmoe_dtype types[] = {DSMOE_Q8_0, DSMOE_Q4_0, DSMOE_Q4_K, DSMOE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) check_quantised_zeros(types[i]);
}

/* Ten steps with other numbers of threads, with recomputed layers, and with fewer layers kept. */
static void test_same_bits(void **state)
{
    (void)state;
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 54);
    made_gguf_options q8 = {.type = DSMOE_Q8_0, .has_type = true};
    made_gguf_write(&model, made_file, &q8);
    tuned t = {0};
    tuning_make_lora(&t, made_file, tuning_all_targets, 2, 17);
    dsmoe_trainer *others[3];
    dsmoe_trainer_options options = t.options;
    options.n_threads = 5;
    others[0] = tuning_create(&config, &options);
    options.n_threads = 1;
    options.recompute = true;
    others[1] = tuning_create(&config, &options);
    options.recompute = false;
    dsmoe_trainer_memory full = dsmoe_trainer_memory_size(&config, &options);
    options.most_memory = full.base + full.weights + full.gradients + full.moments +
                          full.activations + full.workspace - 1;
    dsmoe_trainer_memory less = dsmoe_trainer_memory_size(&config, &options);
    assert_true(less.activations < full.activations);
    others[2] = tuning_create(&config, &options);
    made_batch batch = made_batch_create(&config, &t.options, 3);
    for (int i = -1; i < 3; i++) {
        dsmoe_trainer *trainer = i < 0 ? t.trainer : others[i];
        dsmoe_trainer_init(trainer, 5);
        for (int step = 0; step < 10; step++) {
            run_batch(trainer, &batch);
            if (step % 3 == 0) run_batch(trainer, &batch);
            run_update(trainer, 1e-3);
        }
    }
    for (int i = 0; i < 3; i++)
        for (size_t p = 0; p < dsmoe_trainer_parameter_count(t.trainer); p++) {
            dsmoe_tensor_info info = dsmoe_trainer_parameter(t.trainer, p);
            assert_same_bits(dsmoe_trainer_weight(t.trainer, p), dsmoe_trainer_weight(others[i], p),
                             info.size / sizeof(float), info.name);
        }
    for (int i = 0; i < 3; i++) dsmoe_trainer_free(others[i]);
    made_batch_free(&batch);
    tuning_free(&t);
    made_model_free(&model);
}

/* ---- refused options ------------------------------------------------------------------------------ */

static void refuse(dsmoe_tuning tuning, const dsmoe_config *config, const char *part)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    dsmoe_trainer_options options = made_options(1, 4);
    options.tuning = &tuning;
    assert_true(dsmoe_trainer_create(config, &options, &trainer, &error) != DSMOE_OK);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_config config = tuning_config(), other = config;
    made_model model = made_model_create(&config, "F32", 55);
    made_model_write(&model, directory, false);
    dsmoe_model *base = tuning_open_base(directory);
    dsmoe_tuning good = {.base = base,
                         .train = DSMOE_TRAIN_LORA,
                         .rank = 2,
                         .alpha = 4,
                         .targets = "attention"},
                 bad = good;
    bad.rank = 0;
    refuse(bad, &config, "rank must be 1 to 256");
    bad = good;
    bad.alpha = NAN;
    refuse(bad, &config, "alpha");
    bad = good;
    bad.targets = "attention,lm_head";
    refuse(bad, &config, "\"lm_head\"");
    bad.targets = "";
    refuse(bad, &config, "name no matrix");
    bad.targets = "gate";
    refuse(bad, &config, "\"gate\"");
    bad = good;
    bad.train = DSMOE_TRAIN_EXPERTS;
    refuse(bad, &config, "no routed expert");
    bad = good;
    bad.base = NULL;
    refuse(bad, &config, "base must be given");
    other.vocab_size++;
    refuse(good, &other, "differs");
    dsmoe_model_free(base);
    made_model_remove(directory);
    made_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts),         cmocka_unit_test(test_types),
        cmocka_unit_test(test_rope_pairs),      cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_same_bits),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_quantised_zeros),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}

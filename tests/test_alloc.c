/* test_alloc.c - running out of memory in a layer and a trainer; and that layers, engines and trainers
 * allocate nothing while they run. */
#include "alloc_failures.h"

#include <stdlib.h>

#include "model/weights.h"

/* ---- a layer and its parts ------------------------------------------------------------------ */

static dsmoe_layer_config config;
static dsmoe_layer_weights *weights;

static dsmoe_status make_weights(dsmoe_error *error)
{
    dsmoe_layer_weights *made = NULL;
    dsmoe_status status = dsmoe_layer_weights_create(&config, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_weights_free(made);
    return status;
}

static dsmoe_status make_layer(dsmoe_error *error)
{
    dsmoe_layer *made = NULL;
    dsmoe_status status = dsmoe_layer_create(&config, weights, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_free(made);
    return status;
}

static dsmoe_status measure_device_loss(dsmoe_error *error)
{
    float scores[6] = {0.5f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f};
    int32_t topk_idx[2] = {0, 1};
    double loss;
    return dsmoe_device_loss(&config, (dsmoe_routing){scores, topk_idx, NULL}, 1, 2, &loss, error);
}

static dsmoe_status measure_machine(dsmoe_error *error)
{
    dsmoe_machine machine;
    static float memory[(64 << 20) / sizeof(float)];
    return dsmoe_machine_measure(1, 0.01, memory, sizeof memory, &machine, error);
}

static dsmoe_status make_plan(dsmoe_error *error)
{
    dsmoe_plan plan;
    dsmoe_status status = dsmoe_plan_make(16, 2, 4, 1, 2048, 5632, &plan, error);
    dsmoe_plan_free(&plan);
    return status;
}

static dsmoe_status count_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(64, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status count_no_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(3, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status read_config(dsmoe_error *error)
{
    dsmoe_config read;
    return dsmoe_config_read(TEST_DATA "/config/deepseek-moe-16b.json", &read, error);
}

static dsmoe_status verify_file(dsmoe_error *error)
{
    bool all_ok;
    dsmoe_status status = dsmoe_verify_layer_file(TEST_DATA "/layer/one_token.safetensors", 1e-5, 1,
                                                  NULL, NULL, &all_ok, error);
    assert_true(all_ok == (status == DSMOE_OK));
    return status;
}

static void test_failures(void **state)
{
    (void)state;
    config = small_config(8, 4, 6, 2, 1);
    assert_int_equal(dsmoe_layer_weights_create(&config, &weights, NULL), DSMOE_OK);
    check_failures("dsmoe_layer_weights_create", make_weights, ALLOC_MEMORY);
    check_failures("dsmoe_layer_create", make_layer, ALLOC_MEMORY);
    check_failures("dsmoe_device_loss", measure_device_loss, ALLOC_MEMORY);
    check_failures("dsmoe_plan_make", make_plan, ALLOC_MEMORY);
    check_failures("dsmoe_combinations", count_combinations, ALLOC_MEMORY);
    check_failures("dsmoe_combinations of none", count_no_combinations, ALLOC_MEMORY);
    check_failures("dsmoe_config_read", read_config, ALLOC_IO);
    check_failures("dsmoe_verify_layer_file", verify_file, ALLOC_IO);
    check_failures("dsmoe_machine_measure", measure_machine, ALLOC_MEMORY);
    dsmoe_layer_weights_free(weights);
}

/* ---- a trainer ------------------------------------------------------------------------------ */

static dsmoe_config train_config(void)
{
    dsmoe_config small;
    assert_int_equal(dsmoe_config_preset("tiny", &small, NULL), DSMOE_OK);
    small.vocab_size = small.hidden_size = small.intermediate_size = 32;
    small.num_hidden_layers = 2;
    small.first_k_dense_replace = 1;
    small.n_routed_experts = small.num_experts_per_tok = 3;
    return small;
}

static dsmoe_trainer_options train_options(void)
{
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 2;
    options.sequence_length = 20;
    options.n_threads = 2;
    return options;
}

static dsmoe_status make_trainer(dsmoe_error *error)
{
    dsmoe_trainer *made = NULL;
    dsmoe_config small = train_config();
    dsmoe_trainer_options options = train_options();
    dsmoe_status status = dsmoe_trainer_create(&small, &options, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_trainer_free(made);
    return status;
}

/* The sizes are all known or, if there was no memory to compute them, all unknown. */
static dsmoe_status measure_trainer(dsmoe_error *error)
{
    dsmoe_config small = train_config();
    dsmoe_trainer_options options = train_options();
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(&small, &options);
    bool known = m.weights > 0;
    assert_true(known == (m.gradients > 0) && known == (m.moments > 0));
    assert_true(known == (m.activations > 0) && known == (m.workspace > 0));
    if (known) return DSMOE_OK;
    *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "no sizes"};
    return DSMOE_ERROR_MEMORY;
}

static void test_trainer_failures(void **state)
{
    (void)state;
    check_failures("dsmoe_trainer_create", make_trainer, ALLOC_MEMORY);
    check_failures("dsmoe_trainer_memory_size", measure_trainer, ALLOC_MEMORY);
}

/* The bytes that memory_alloc takes: large pieces are rounded up to whole huge pages. */
static size_t in_whole_pages(size_t size)
{
    const size_t page = (size_t)1 << 21;
    return size < 2 * page ? size : (size + page - 1) / page * page;
}

/* The five sizes are all that a trainer allocates, except three tables with the address of each tensor.
 * Training allocates nothing. */
static void test_trainer_memory(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        dsmoe_config small = train_config();
        dsmoe_trainer_options options = train_options();
        int32_t tokens[40] = {1, 2, 3}, targets[40] = {2, 3, -1};
        dsmoe_trainer *trainer;
        options.recompute = recompute;
        size_t before_table = alloc_aligned();
        weights_free(weights_create(&small));
        size_t table = alloc_aligned() - before_table;
        dsmoe_trainer_memory m = dsmoe_trainer_memory_size(&small, &options);
        size_t before_trainer = alloc_aligned();
        assert_int_equal(dsmoe_trainer_create(&small, &options, &trainer, NULL), DSMOE_OK);
        assert_int_equal(alloc_aligned() - before_trainer - 3 * table,
                         m.weights + m.gradients + m.moments +
                             in_whole_pages(m.activations + m.workspace));
        long before = alloc_count();
        dsmoe_trainer_init(trainer, 1);
        for (int i = 0; i < 4; i++) {
            dsmoe_batch_losses losses;
            dsmoe_update update;
            const dsmoe_batch batch = {.tokens = tokens, .targets = targets};
            assert_int_equal(dsmoe_trainer_backward(trainer, &batch, &losses, NULL), DSMOE_OK);
            if (i % 2) assert_int_equal(dsmoe_trainer_update(trainer, 1e-3, &update, NULL), 0);
        }
        assert_int_equal(alloc_count(), before);
        dsmoe_trainer_free(trainer);
    }
}

/* ---- nothing is allocated while a layer runs ------------------------------------------------ */

static void run_passes(fixture *f)
{
    fixture_infer(f);
    assert_int_equal(
        dsmoe_layer_route(f->layer, f->x, f->n_tokens, (dsmoe_routing){0}, &f->workspace, NULL),
        DSMOE_OK);
    fixture_forward(f);
    fixture_backward(f, false);
}

static void test_passes_allocate_nothing(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        dsmoe_layer_config c = small_config(40, 20, 6, 2, 1);
        c.n_device_groups = 2;
        c.device_loss_alpha = 0.05f;
        fixture f = fixture_make(c, 2, 1500, n_threads, 5);
        run_passes(&f); /* creates the threads */
        long before = alloc_count();
        run_passes(&f);
        assert_int_equal(alloc_count(), before);
        fixture_free(&f);
    }
}

/* Neither prompts nor single tokens, nor choosing the next token and its log probability. */
static void test_sequences_allocate_nothing(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7};
    dsmoe_model *model;
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    dsmoe_engine_options options = {.n_ctx = 100, .n_batch = 5, .n_threads = 2};
    dsmoe_sampler_options sampling = dsmoe_sampler_options_default();
    sampling.presence_penalty = 0.5;
    dsmoe_logprobs logprobs;
    assert_int_equal(dsmoe_model_open(TEST_DATA "/lm/base", &model, NULL), DSMOE_OK);
    int64_t vocab = dsmoe_model_config(model)->vocab_size;
    assert_int_equal(dsmoe_engine_create(model, &options, &engine, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_sequence_create(engine, &sequence, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_sampler_create(&sampling, vocab, &sampler, NULL), DSMOE_OK);
    float *logits = malloc((size_t)vocab * sizeof *logits);
    assert_non_null(logits);
    long before = alloc_count();
    for (int round = 0; round < 3; round++) {
        int32_t token;
        assert_int_equal(dsmoe_sequence_append(sequence, tokens, 7, logits, NULL), DSMOE_OK);
        assert_int_equal(dsmoe_sampler_pick(sampler, logits, &token, NULL), DSMOE_OK);
        dsmoe_sampler_accept(sampler, token);
        assert_int_equal(dsmoe_logprobs_compute(logits, vocab, token, 20, &logprobs, NULL),
                         DSMOE_OK);
        assert_int_equal(dsmoe_sequence_append(sequence, &token, 1, logits, NULL), DSMOE_OK);
    }
    assert_int_equal(alloc_count(), before);
    free(logits);
    dsmoe_sampler_free(sampler);
    dsmoe_engine_free(engine);
    dsmoe_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_trainer_failures),
        cmocka_unit_test(test_trainer_memory),
        cmocka_unit_test(test_passes_allocate_nothing),
        cmocka_unit_test(test_sequences_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

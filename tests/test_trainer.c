/* test_trainer.c - what a trainer computes: the same bits for any number of threads and with recomputed
 * layers, gradients of several batches, the same losses as sequences have, initial weights, AdamW in
 * double, the load of the experts, and the times. test_train_gradients.c tests the gradients themselves. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "made_trainer.h"
#include "scratch.h"

/* Enough numbers for several chunks of the optimizer, and enough tokens for two blocks of queries and
 * several parts of the head. */
static dsmoe_config large_config(void)
{
    dsmoe_config c = made_config();
    c.vocab_size = 900;
    c.attention_bias = true;
    c.aux_loss_alpha = 0.01;
    return c;
}

/* ---- threads and recomputation ------------------------------------------------------------------ */

enum { BATCHES = 4 };

/* Two updates, the second one after two batches, and one more batch, whose gradients stay. */
static dsmoe_trainer *train_a_little(const dsmoe_config *config,
                                     const dsmoe_trainer_options *options, double losses[BATCHES])
{
    dsmoe_trainer *trainer = fresh_trainer(config, options, 11);
    for (int i = 0; i < BATCHES; i++) {
        made_batch batch = made_batch_create(config, options, 20 + (uint64_t)i);
        dsmoe_batch_losses l = run_batch(trainer, &batch);
        losses[i] = l.loss + 1e3 * l.aux_loss + 1e6 * l.device_loss;
        if (i == 0 || i == 2) assert_false(run_update(trainer, 1e-2).skipped);
        made_batch_free(&batch);
    }
    return trainer;
}

/* The other options must give the same bits as the first ones. */
static void compare_runs(const dsmoe_config *config, const dsmoe_trainer_options *options, int n)
{
    double expected[BATCHES], losses[BATCHES];
    dsmoe_trainer *one = train_a_little(config, &options[0], expected);
    size_t load = (size_t)(config->n_routed_experts * 2) * sizeof(int64_t); /* two layers */
    for (int i = 1; i < n; i++) {
        dsmoe_trainer *other = train_a_little(config, &options[i], losses);
        assert_memory_equal(losses, expected, sizeof losses);
        assert_same_trainers(one, other);
        assert_memory_equal(dsmoe_trainer_expert_load(one), dsmoe_trainer_expert_load(other), load);
        dsmoe_trainer_free(other);
    }
    dsmoe_trainer_free(one);
}

static void test_threads(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 2, 3, 5};
    dsmoe_config large = large_config(), small = made_config(), latent = made_latent_config();
    dsmoe_trainer_options options[COUNT(n_threads)];
    small.num_key_value_heads = 1;
    small.tie_word_embeddings = true;
    small.norm_topk_prob = true;
    small.seq_aux = false;
    for (size_t i = 0; i < COUNT(n_threads); i++) {
        options[i] = made_options(7, 75);
        options[i].n_device_groups = 7;
        options[i].device_loss_alpha = 0.05;
        options[i].n_threads = n_threads[i];
    }
    compare_runs(&large, options, COUNT(n_threads));
    compare_runs(&latent, options, COUNT(n_threads));
    for (size_t i = 0; i < COUNT(n_threads); i++) { /* fewer tasks than threads */
        options[i].n_sequences = 1;
        options[i].sequence_length = 3;
    }
    compare_runs(&small, options, COUNT(n_threads));
    compare_runs(&latent, options, COUNT(n_threads));
}

static void test_recompute(void **state)
{
    (void)state;
    dsmoe_config config = large_config(), dense = made_config(), latent = made_latent_config();
    dense.n_routed_experts = dense.num_experts_per_tok = dense.n_shared_experts = 0;
    dsmoe_trainer_options options[] = {made_options(3, 20), made_options(3, 20)};
    options[1].recompute = true;
    options[1].n_threads = 2;
    compare_runs(&config, options, 2);
    compare_runs(&dense, options, 2);
    compare_runs(&latent, options, 2);
    size_t more = dsmoe_trainer_memory_size(&config, &options[0]).activations;
    size_t less = dsmoe_trainer_memory_size(&config, &options[1]).activations;
    assert_true(less > 0 && less < more * 2 / 3);
}

static size_t lines(int64_t n) { return ((size_t)n * sizeof(float) + 63) / 64 * 64; }

/* The activations that a dense layer keeps: input, middle, queries, keys, values, heads, and both halves
 * of its SwiGLU. test_alloc.c checks the total memory. */
static void test_activations(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    dsmoe_trainer_options options = made_options(3, 20);
    int64_t n = 60;
    c.n_routed_experts = c.num_experts_per_tok = c.n_shared_experts = 0;
    c.num_key_value_heads = 1;
    size_t input = lines(n * c.hidden_size);
    size_t rest = 3 * lines(n * c.hidden_size) + 2 * lines(n * c.hidden_size / 3) +
                  2 * lines(n * c.intermediate_size);
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations, 3 * (input + rest));
    options.recompute = true;
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations, 3 * input + rest);
}

/* With latent attention heads have their own widths, and the inputs of the inner norms are kept, too. */
static void test_latent_activations(void **state)
{
    (void)state;
    dsmoe_config c = made_latent_config();
    dsmoe_trainer_options options = made_options(3, 20);
    int64_t n = 60, heads = c.num_attention_heads;
    c.n_routed_experts = c.num_experts_per_tok = c.n_shared_experts = 0;
    size_t input = lines(n * c.hidden_size);
    size_t rest = lines(n * c.hidden_size) + 2 * lines(n * heads * (9 + 6)) +
                  2 * lines(n * heads * 11) + lines(n * 21) + lines(n * 18) +
                  2 * lines(n * c.intermediate_size);
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations, 3 * (input + rest));
    options.recompute = true;
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations, 3 * input + rest);
    c.q_lora_rank = 0;
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations,
                     3 * input + rest - lines(n * 18));
    /* Rows so wide that a batch exceeds the address space. */
    c.num_attention_heads = c.num_key_value_heads = 1 << 20;
    c.qk_nope_head_dim = c.v_head_dim = 1 << 20;
    c.hidden_size = c.intermediate_size = c.kv_lora_rank = 1;
    options.sequence_length = 1 << 22;
    assert_int_equal(dsmoe_trainer_memory_size(&c, &options).activations, 0);
}

/* ---- several batches ---------------------------------------------------------------------------- */

/* The gradients of two batches are added: the sum is twice the gradient of one batch with all their
 * sequences. An update divides by the number of batches. */
static void accumulate(dsmoe_config config)
{
    config.aux_loss_alpha = 0.1; /* per sequence, so that halves add up */
    dsmoe_trainer_options half = made_options(2, 9), whole = made_options(4, 9);
    made_batch all = made_batch_create(&config, &whole, 3);
    dsmoe_trainer *one = fresh_trainer(&config, &whole, 4);
    dsmoe_trainer *two = fresh_trainer(&config, &half, 4);
    dsmoe_batch_losses losses = run_batch(one, &all), parts[2];
    for (int i = 0; i < 2; i++) {
        made_batch part = {all.n / 2, all.tokens + i * all.n / 2, all.targets + i * all.n / 2};
        parts[i] = run_batch(two, &part);
    }
    assert_true(fabs(losses.loss - (parts[0].loss + parts[1].loss) / 2) < 1e-6);
    assert_true(fabs(losses.aux_loss - (parts[0].aux_loss + parts[1].aux_loss) / 2) < 1e-7);
    for (size_t i = 0; i < trainer_tensors(one); i++) {
        double worst = 0, largest = 0;
        for (int64_t j = 0; j < trainer_count(one, i); j++) {
            double mean = 0.5 * dsmoe_trainer_gradient(two, i)[j];
            worst = fmax(worst, fabs(dsmoe_trainer_gradient(one, i)[j] - mean));
            largest = fmax(largest, fabs(mean));
        }
        if (!(worst <= 1e-5 * largest)) fail_msg("%s is off by %g", trainer_name(one, i), worst);
    }
    double norm = gradient_norm(one), norm_of_two = gradient_norm(two) / 2;
    double a = run_update(one, 1e-3).grad_norm, b = run_update(two, 0).grad_norm;
    assert_true(fabs(a - norm) < 1e-9 * norm && fabs(b - norm_of_two) < 1e-9 * norm);
    made_batch first = {all.n / 2, all.tokens, all.targets}; /* the next batch starts again */
    dsmoe_trainer *fresh = fresh_trainer(&config, &half, 4);
    run_batch(fresh, &first);
    run_batch(two, &first);
    assert_same_trainers(fresh, two);
    dsmoe_trainer_free(fresh);
    made_batch_free(&all);
    dsmoe_trainer_free(one);
    dsmoe_trainer_free(two);
}

static void test_accumulation(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    config.attention_bias = true;
    accumulate(config);
    accumulate(made_latent_config());
}

/* Without targets the loss is 0, and only the balance losses have gradients. */
static void test_no_targets(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    dsmoe_trainer_options options = made_options(2, 5);
    made_batch batch = made_batch_create(&config, &options, 3);
    for (int64_t i = 0; i < batch.n; i++) batch.targets[i] = -1;
    dsmoe_trainer *trainer = fresh_trainer(&config, &options, 4);
    dsmoe_batch_losses losses = run_batch(trainer, &batch);
    assert_true(losses.loss == 0 && losses.aux_loss > 0 && losses.device_loss == 0);
    const float *head = dsmoe_trainer_gradient(trainer, trainer_find(trainer, "lm_head.weight"));
    for (int64_t i = 0; i < config.vocab_size * config.hidden_size; i++) assert_true(head[i] == 0);
    size_t gate = trainer_find(trainer, "model.layers.2.mlp.gate.weight");
    double sum = 0;
    for (int64_t i = 0; i < trainer_count(trainer, gate); i++)
        sum += fabsf(dsmoe_trainer_gradient(trainer, gate)[i]);
    assert_true(sum > 0);
    assert_false(run_update(trainer, 1e-3).skipped);
    made_batch_free(&batch);
    dsmoe_trainer_free(trainer);
}

/* ---- the same model used by sequences ------------------------------------------------------------ */

/* Counts the routing of a sequence. */
typedef struct load_count {
    int64_t n_experts, k, first_layer;
    int64_t *load; /* [MoE layers, n_experts] */
} load_count;

static void count_routing(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                          const dsmoe_routing *routing)
{
    (void)first;
    load_count *count = context;
    int64_t *load = count->load + (layer - count->first_layer) * count->n_experts;
    for (int64_t i = 0; i < n_tokens * count->k; i++) load[routing->topk_idx[i]]++;
}

static double sequence_loss(dsmoe_trainer *trainer, const made_batch *batch,
                            const dsmoe_trainer_options *options, load_count *count)
{
    int64_t length = options->sequence_length, n = 0;
    dsmoe_sequence *sequence = make_sequence(dsmoe_trainer_model(trainer), length, length, 1);
    float *losses = malloc((size_t)length * sizeof *losses);
    double sum = 0;
    assert_non_null(losses);
    dsmoe_sequence_watch(sequence, count_routing, count);
    for (int64_t s = 0; s < options->n_sequences; s++) {
        dsmoe_error error = {0};
        dsmoe_turn turn = {.sequence = sequence,
                           .tokens = batch->tokens + s * length,
                           .n_tokens = length - 1, /* the last token has no target, but */
                           .n_logits = length - 1,
                           .targets = batch->tokens + s * length + 1,
                           .loss = losses};
        rewind_to(sequence, 0);
        must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
             "a sequence");
        decode(sequence, turn.tokens[length - 1], NULL); /* it is routed, too */
        for (int64_t i = 0; i < length - 1; i++, n++) sum += losses[i];
    }
    free(losses);
    free_sequence(sequence);
    return sum / (double)n;
}

static void test_sequences(void **state)
{
    (void)state;
    dsmoe_config config = large_config();
    dsmoe_trainer_options options = made_options(3, 100);
    dsmoe_trainer *trainer = fresh_trainer(&config, &options, 5);
    made_batch batch = made_batch_create(&config, &options, 6);
    double before = 0;
    for (int step = 0; step < 4; step++) { /* the model sees every update */
        int64_t load[2 * 7] = {0};
        load_count count = {config.n_routed_experts, config.num_experts_per_tok, 1, load};
        double expected = sequence_loss(trainer, &batch, &options, &count);
        dsmoe_trainer_reset_load(trainer);
        double loss = run_batch(trainer, &batch).loss;
        if (!(fabs(loss - expected) <= 1e-5))
            fail_msg("the loss is %.9g, but %.9g in a sequence", loss, expected);
        assert_memory_equal(dsmoe_trainer_expert_load(trainer), load, sizeof load);
        if (step > 0) assert_true(loss < before);
        before = loss;
        run_update(trainer, 3e-3);
    }
    made_batch_free(&batch);
    dsmoe_trainer_free(trainer);
}

/* ---- initial weights ---------------------------------------------------------------------------- */

static void remove_model(const char *folder)
{
    char name[400];
    made_model_remove(folder);
    snprintf(name, sizeof name, "%s/generation_config.json", folder);
    remove(name);
}

static void assert_weights(const dsmoe_trainer *trainer, const made_model *expected)
{
    assert_int_equal(trainer_tensors(trainer), expected->n_tensors);
    for (int i = 0; i < expected->n_tensors; i++) {
        const made_tensor *t = &expected->tensors[i];
        size_t index = trainer_find(trainer, t->name);
        dsmoe_tensor_info info = dsmoe_model_tensor(dsmoe_trainer_model(trainer), index);
        assert_int_equal(info.dtype, DSMOE_F32);
        assert_int_equal(info.n_dims, t->n_dims);
        assert_int_equal(info.size, (size_t)t->n * sizeof(float));
        assert_same_bits(dsmoe_trainer_weight(trainer, index), t->data, (size_t)t->n, t->name);
    }
}

static void test_init(void **state)
{
    (void)state;
    dsmoe_config config = large_config();
    dsmoe_error error = {0};
    config.initializer_range = 0.05;
    must(dsmoe_model_init(directory, &config, DSMOE_F32, 77, 1, NULL, NULL, &error), &error,
         "a fresh model");
    made_model expected = made_model_read(directory);
    dsmoe_trainer_options options = made_options(1, 4);
    options.n_threads = 3;
    dsmoe_trainer *trainer = fresh_trainer(&config, &options, 77);
    assert_weights(trainer, &expected);
    dsmoe_trainer_init(trainer, 78);
    size_t embedding = trainer_find(trainer, "model.embed_tokens.weight");
    assert_true(dsmoe_trainer_weight(trainer, embedding)[0] != expected.tensors[0].data[0]);
    assert_null(dsmoe_trainer_weight(trainer, trainer_tensors(trainer)));
    assert_null(dsmoe_trainer_gradient(trainer, SIZE_MAX));
    dsmoe_trainer_free(trainer);
    made_model_free(&expected);
    remove_model(directory);
}

static void load_wrong(const dsmoe_model *model, const dsmoe_config *config, const char *says)
{
    dsmoe_error error = {0};
    dsmoe_trainer_options options = made_options(1, 4);
    dsmoe_trainer *trainer = fresh_trainer(config, &options, 1);
    assert_int_equal(dsmoe_trainer_load(trainer, model, &error), DSMOE_ERROR_CONFIG);
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
    dsmoe_trainer_free(trainer);
}

static void test_load(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"F32", "BF16", "F16"};
    dsmoe_config config = made_config();
    dsmoe_trainer_options options = made_options(1, 4);
    config.attention_bias = true;
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        made_model made = made_model_create(&config, dtypes[i], 8);
        made_model_write(&made, directory, i == 1); /* also at odd addresses */
        dsmoe_model *model = open_model(directory);
        dsmoe_trainer *trainer = fresh_trainer(&config, &options, 1);
        dsmoe_error error = {0};
        must(dsmoe_trainer_load(trainer, model, &error), &error, "loading");
        assert_weights(trainer, &made);
        assert_int_equal(dsmoe_trainer_load(NULL, model, &error), DSMOE_ERROR_ARGUMENT);
        assert_int_equal(dsmoe_trainer_load(trainer, NULL, &error), DSMOE_ERROR_ARGUMENT);
        dsmoe_config other = config;
        other.hidden_size = 36;
        load_wrong(model, &other, "model.embed_tokens.weight");
        other = config;
        other.n_routed_experts = 8;
        load_wrong(model, &other, "model.layers.1.mlp.gate.weight");
        other = config;
        other.num_hidden_layers = 2;
        load_wrong(model, &other, "model.layers.2.input_layernorm.weight");
        other = config;
        other.tie_word_embeddings = true;
        load_wrong(model, &other, "lm_head.weight");
        dsmoe_trainer_free(trainer);
        dsmoe_model_free(model);
        made_model_free(&made);
    }
    made_model_remove(directory);
}

static void test_load_less(void **state)
{
    (void)state;
    dsmoe_config config = made_config(), other = config;
    config.tie_word_embeddings = true;
    made_model made = made_model_create(&config, "F32", 8);
    made_model_write(&made, directory, false);
    dsmoe_model *model = open_model(directory);
    load_wrong(model, &other, "lm_head.weight");
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

/* ---- load and imbalance -------------------------------------------------------------------------- */

/* The largest load of a layer divided by the mean. The loads must add up to `expected`. */
static double layer_imbalance(const int64_t *load, int64_t n, int64_t expected)
{
    int64_t sum = 0, most = 0;
    for (int64_t e = 0; e < n; e++) {
        sum += load[e];
        if (load[e] > most) most = load[e];
    }
    assert_int_equal(sum, expected);
    return (double)(most * n) / (double)sum;
}

static void test_expert_load(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    dsmoe_trainer_options options = made_options(3, 11);
    int64_t n = config.n_routed_experts, chosen = 33 * config.num_experts_per_tok;
    int n_worse[2] = {0};
    made_batch batch = made_batch_create(&config, &options, 1);
    for (uint64_t seed = 0; seed < 8; seed++) {
        dsmoe_trainer *trainer = fresh_trainer(&config, &options, seed);
        assert_true(dsmoe_trainer_imbalance(trainer) == 0);
        for (int round = 1; round <= 2; round++) {
            run_batch(trainer, &batch);
            const int64_t *load = dsmoe_trainer_expert_load(trainer);
            double first = layer_imbalance(load, n, chosen * round);
            double second = layer_imbalance(load + n, n, chosen * round);
            n_worse[second > first]++;
            assert_true(fmin(first, second) >= 1);
            assert_true(fabs(dsmoe_trainer_imbalance(trainer) - fmax(first, second)) < 1e-12);
        }
        dsmoe_trainer_reset_load(trainer);
        for (int64_t i = 0; i < 2 * n; i++)
            assert_int_equal(dsmoe_trainer_expert_load(trainer)[i], 0);
        assert_true(dsmoe_trainer_imbalance(trainer) == 0);
        dsmoe_trainer_free(trainer);
    }
    assert_true(n_worse[0] > 0 && n_worse[1] > 0); /* each layer was the worst one sometimes */
    made_batch_free(&batch);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double sum_times(dsmoe_trainer_times t)
{
    assert_true(t.attention >= 0 && t.experts >= 0 && t.router >= 0);
    assert_true(t.head >= 0 && t.optimizer >= 0 && t.rest >= 0);
    return t.attention + t.experts + t.router + t.head + t.optimizer + t.rest;
}

static void test_times(void **state)
{
    (void)state;
    dsmoe_config config = large_config();
    dsmoe_trainer_options options = made_options(4, 64);
    made_batch batch = made_batch_create(&config, &options, 1);
    for (int recompute = 0; recompute < 2; recompute++) {
        options.recompute = recompute;
        dsmoe_trainer *trainer = fresh_trainer(&config, &options, 2);
        assert_true(sum_times(dsmoe_trainer_take_times(trainer)) == 0);
        double start = now();
        run_batch(trainer, &batch);
        run_update(trainer, 1e-3);
        double passed = now() - start;
        dsmoe_trainer_times times = dsmoe_trainer_take_times(trainer);
        assert_true(times.attention > 0 && times.experts > 0 && times.router > 0);
        assert_true(times.head > 0 && times.optimizer > 0 && times.rest > 0);
        assert_true(sum_times(times) <= passed && sum_times(times) >= 0.5 * passed);
        assert_true(sum_times(dsmoe_trainer_take_times(trainer)) == 0);
        dsmoe_trainer_free(trainer);
    }
    made_batch_free(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_activations),  cmocka_unit_test(test_latent_activations),
        cmocka_unit_test(test_accumulation), cmocka_unit_test(test_no_targets),
        cmocka_unit_test(test_sequences),    cmocka_unit_test(test_init),
        cmocka_unit_test(test_load),         cmocka_unit_test(test_load_less),
        cmocka_unit_test(test_expert_load),  cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

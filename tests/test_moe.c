/* test_moe.c - the public interface of the layer: what it computes, what it refuses, and the edge cases:
 * an empty batch, an expert without tokens, NaN and infinity. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"

static void assert_message(const dsmoe_error *error, dsmoe_status status, const char *word)
{
    if (error->status != status || !strstr(error->message, word) || strchr(error->message, '\n'))
        fail_msg("status %d, message \"%s\"; status %d and \"%s\" are expected", error->status,
                 error->message, status, word);
}

/* ---- configurations ------------------------------------------------------------------------- */

static dsmoe_layer_config good_config(void) { return small_config(8, 4, 6, 2, 1); }

/* Every function that takes a configuration must refuse it and name the key. */
static void assert_refused(dsmoe_layer_config config, const char *key)
{
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_layer_config_check(&config, &error), DSMOE_ERROR_CONFIG);
    assert_message(&error, DSMOE_ERROR_CONFIG, key);
    assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_ERROR_CONFIG);

    dsmoe_layer_weights none = {0}, *weights = &none;
    error = (dsmoe_error){0};
    assert_int_equal(dsmoe_layer_weights_create(&config, &weights, &error), DSMOE_ERROR_CONFIG);
    assert_message(&error, DSMOE_ERROR_CONFIG, key);
    assert_null(weights);
    error = (dsmoe_error){0};
    assert_int_equal(dsmoe_layer_weights_init(&config, &none, 0.1f, 1, 1, &error),
                     DSMOE_ERROR_CONFIG);
    assert_message(&error, DSMOE_ERROR_CONFIG, key);
    dsmoe_layer *layer = (dsmoe_layer *)&none;
    error = (dsmoe_error){0};
    assert_int_equal(dsmoe_layer_create(&config, &none, &layer, &error), DSMOE_ERROR_CONFIG);
    assert_message(&error, DSMOE_ERROR_CONFIG, key);
    assert_null(layer);
}

static void test_config_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        size_t place;
        int64_t min;
    } keys[] = {
        {"hidden_size", offsetof(dsmoe_layer_config, hidden_size), 1},
        {"moe_intermediate_size", offsetof(dsmoe_layer_config, moe_intermediate_size), 1},
        {"n_routed_experts", offsetof(dsmoe_layer_config, n_routed_experts), 1},
        {"n_shared_experts", offsetof(dsmoe_layer_config, n_shared_experts), 0},
        {"num_experts_per_tok", offsetof(dsmoe_layer_config, num_experts_per_tok), 1},
        {"n_device_groups", offsetof(dsmoe_layer_config, n_device_groups), 0},
        {"n_group", offsetof(dsmoe_layer_config, n_group), 0},
        {"topk_group", offsetof(dsmoe_layer_config, topk_group), 0},
    };
    static const int64_t wrong[] = {INT64_MIN, -1, INT64_C(1) << 31, INT64_C(1) << 40, INT64_MAX};
    for (size_t i = 0; i < COUNT(keys); i++) {
        dsmoe_layer_config config = good_config();
        int64_t *value = (int64_t *)((char *)&config + keys[i].place);
        for (size_t j = 0; j < COUNT(wrong); j++) {
            *value = wrong[j];
            assert_refused(config, keys[i].key);
        }
        *value = 0;
        if (keys[i].min == 1)
            assert_refused(config, keys[i].key);
        else
            assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
    }
}

static void test_config_relations(void **state)
{
    (void)state;
    dsmoe_layer_config config = good_config();
    config.num_experts_per_tok = 7;
    assert_refused(config, "num_experts_per_tok");
    config.num_experts_per_tok = 6;
    assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
    config.n_device_groups = 4;
    assert_refused(config, "n_device_groups");
    config.n_device_groups = 12;
    assert_refused(config, "n_device_groups");
    config.n_device_groups = 6;
    assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
    static const float wrong[] = {-1.0f, -1e-30f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        config = good_config();
        config.aux_loss_alpha = wrong[i];
        assert_refused(config, "aux_loss_alpha");
        config = good_config();
        config.device_loss_alpha = wrong[i];
        assert_refused(config, "device_loss_alpha");
        config = good_config();
        config.routed_scaling_factor = wrong[i];
        assert_refused(config, "routed_scaling_factor");
    }
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_layer_config_check(NULL, &error), DSMOE_ERROR_ARGUMENT);
}

static void test_config_words(void **state)
{
    (void)state;
    static const char *const scoring_funcs[] = {NULL, "softmax", "sigmoid"};
    static const char *const topk_methods[] = {NULL, "greedy", "group_limited_greedy", "noaux_tc"};
    static const char *const wrong[] = {"", "Softmax", "sigmoid ", "noaux", "greedy_"};
    dsmoe_layer_config config = good_config();
    for (size_t i = 0; i < COUNT(scoring_funcs); i++)
        for (size_t j = 0; j < COUNT(topk_methods); j++) {
            config.scoring_func = scoring_funcs[i];
            config.topk_method = topk_methods[j];
            assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
        }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        config = good_config();
        config.scoring_func = wrong[i];
        assert_refused(config, "scoring_func");
        config = good_config();
        config.topk_method = wrong[i];
        assert_refused(config, "topk_method");
    }
}

static void test_config_groups(void **state)
{
    (void)state;
    static const char *const methods[] = {"group_limited_greedy", "noaux_tc"};
    for (size_t i = 0; i < COUNT(methods); i++) {
        dsmoe_layer_config config = good_config(); /* 2 of 6 experts */
        config.topk_method = methods[i];
        config.n_group = 4;
        config.topk_group = 2;
        assert_refused(config, "n_group");
        config.n_group = 3;
        assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
        config.topk_group = 0;
        assert_refused(config, "topk_group");
        config.topk_group = 4;
        assert_refused(config, "topk_group");
        config.topk_group = 1;
        assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
        config.num_experts_per_tok = 3; /* the group has two */
        assert_refused(config, "topk_group");
        config.num_experts_per_tok = 2;
        config.n_group = 1; /* one group, and it is chosen */
        assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
        config.n_group = 6;
        config.topk_group = 3;
        if (i == 0)
            assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
        else
            assert_refused(config, "n_group"); /* groups of one have no two best */
        config.topk_method = "greedy";         /* ignores groups */
        assert_int_equal(dsmoe_layer_config_check(&config, NULL), DSMOE_OK);
    }
}

static void test_config_default(void **state)
{
    (void)state;
    dsmoe_layer_config config = dsmoe_layer_config_default();
    assert_true(config.aux_loss_alpha == 0.001f && config.seq_aux && !config.norm_topk_prob);
    assert_string_equal(config.scoring_func, "softmax");
    assert_int_equal(config.n_shared_experts, 0);
    assert_int_equal(config.n_device_groups, 0);
}

/* Each size alone is allowed, but the product exceeds any memory, and 64 bits. */
static void test_config_huge(void **state)
{
    (void)state;
    const int64_t large = 1 << 24;
    const dsmoe_layer_config configs[] = {small_config(large, large, 1, 1, large),
                                          small_config(large, large, 1 << 18, 1, 0),
                                          small_config(large, large, 1, 1, 1)};
    for (size_t i = 0; i < COUNT(configs); i++) {
        dsmoe_layer_weights *weights;
        dsmoe_error error = {0};
        dsmoe_status status = dsmoe_layer_weights_create(&configs[i], &weights, &error);
        assert_true(status == DSMOE_ERROR_MEMORY || status == DSMOE_ERROR_CONFIG);
        assert_null(weights);
    }
    /* A layer over weights that are never read: sizes are correct or "too large", but never wrapped
     * around. */
    float number = 0;
    dsmoe_expert_weights expert = {&number, &number, &number};
    dsmoe_layer_weights weights = {.gate = &number, .experts = &expert, .shared_experts = expert};
    dsmoe_layer_config config = small_config(large, large, 1, 1, large);
    dsmoe_layer *layer;
    if (dsmoe_layer_create(&config, &weights, &layer, NULL) != DSMOE_OK) return;
    static const int64_t tokens[] = {1, 1 << 10, 1 << 20, INT32_MAX / 2, INT32_MAX, INT64_MAX};
    for (size_t i = 0; i < COUNT(tokens); i++) {
        long double least = 8.0L * (long double)large * (long double)large * (long double)tokens[i];
        size_t saved = dsmoe_layer_saved_size(layer, tokens[i]);
        size_t train = dsmoe_layer_train_workspace_size(layer, tokens[i], 2);
        size_t infer = dsmoe_layer_workspace_size(layer, tokens[i], 2);
        assert_true(saved == 0 || (long double)saved >= least);
        assert_true(train == 0 || (long double)train >= least / 2);
        assert_true(infer == 0 || (long double)infer >= 4.0L * (long double)large);
    }
    dsmoe_layer_free(layer);
}

/* ---- creating ------------------------------------------------------------------------------- */

static void test_create_refuses(void **state)
{
    (void)state;
    dsmoe_layer_config config = good_config();
    dsmoe_error error = {0};
    dsmoe_layer *layer;
    dsmoe_layer_weights *weights, broken;
    assert_int_equal(dsmoe_layer_weights_create(&config, NULL, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_layer_weights_create(NULL, &weights, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_layer_weights_create(&config, &weights, &error), DSMOE_OK);
    assert_int_equal(dsmoe_layer_create(&config, weights, NULL, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_layer_create(&config, NULL, &layer, &error), DSMOE_ERROR_ARGUMENT);
    assert_null(layer);
    broken = *weights;
    broken.gate = NULL;
    assert_int_equal(dsmoe_layer_create(&config, &broken, &layer, &error), DSMOE_ERROR_ARGUMENT);
    broken = *weights;
    broken.shared_experts.up_proj = NULL;
    assert_int_equal(dsmoe_layer_create(&config, &broken, &layer, &error), DSMOE_ERROR_ARGUMENT);
    assert_message(&error, DSMOE_ERROR_ARGUMENT, "shared");
    float *removed = weights->experts[4].down_proj;
    weights->experts[4].down_proj = NULL;
    assert_int_equal(dsmoe_layer_create(&config, weights, &layer, &error), DSMOE_ERROR_ARGUMENT);
    assert_message(&error, DSMOE_ERROR_ARGUMENT, "expert 4");
    weights->experts[4].down_proj = removed;

    config.topk_method = "noaux_tc";
    assert_int_equal(dsmoe_layer_create(&config, weights, &layer, &error), DSMOE_ERROR_ARGUMENT);
    assert_message(&error, DSMOE_ERROR_ARGUMENT, "e_score_correction_bias");

    /* The layer copies the table of pointers and the words of the configuration. */
    char name[] = "softmax", method[] = "greedy";
    config.scoring_func = name;
    config.topk_method = method;
    assert_int_equal(dsmoe_layer_create(&config, weights, &layer, &error), DSMOE_OK);
    memset(name, 'x', sizeof name - 1);
    memset(method, 'x', sizeof method - 1);
    memset(weights->experts, 0, 6 * sizeof *weights->experts);
    float x[8] = {1}, y[8];
    size_t size = dsmoe_layer_workspace_size(layer, 1, 1);
    dsmoe_workspace workspace = {malloc(size), size, 1};
    assert_int_equal(dsmoe_layer_forward(layer, x, 1, y, &workspace, &error), DSMOE_OK);
    for (int i = 0; i < 8; i++) assert_true(y[i] == 0.0f); /* all weights are zero */
    free(workspace.memory);
    dsmoe_layer_free(layer);
    dsmoe_layer_weights_free(weights);
    dsmoe_layer_free(NULL);
    dsmoe_layer_weights_free(NULL);
}

/* ---- results -------------------------------------------------------------------------------- */

static void check_against_plain(dsmoe_layer_config config, int64_t n_tokens, uint64_t seed)
{
    fixture f = fixture_make(config, 1, n_tokens, 2, seed);
    plain p = plain_of(&f);
    plain_run(&p);
    if (p.margin < 1e-7) fail_msg("%d tokens: a tie is too near (%g)", (int)n_tokens, p.margin);
    fixture_infer(&f);
    double worst = worst_difference(f.y, p.y, n_tokens * config.hidden_size);
    if (!(worst <= 3e-6))
        fail_msg("%d tokens, %d shared: y is off by %g", (int)n_tokens,
                 (int)config.n_shared_experts, worst);
    plain_free(&p);
    fixture_free(&f);
}

static void test_inference(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 1, 2, 3, 4, 9, 95, 96, 97, GEMM_ROWS - 1, GEMM_ROWS + 1};
    for (size_t i = 0; i < COUNT(tokens); i++) {
        check_against_plain(small_config(33, 19, 8, 3, 0), tokens[i], 100 + i);
        check_against_plain(small_config(33, 19, 8, 3, 1), tokens[i], 200 + i);
        check_against_plain(small_config(20, 9, 5, 1, 3), tokens[i], 300 + i);
        dsmoe_layer_config config = small_config(16, 8, 9, 4, 2);
        config.norm_topk_prob = true;
        check_against_plain(config, tokens[i], 400 + i);
    }
    check_against_plain(small_config(1, 1, 1, 1, 0), 3, 7);
    check_against_plain(small_config(530, 300, 3, 2, 1), 7, 8); /* long sums, several parts */
}

static void test_routing(void **state)
{
    (void)state;
    dsmoe_layer_config config = small_config(24, 6, 11, 4, 1);
    config.norm_topk_prob = true;
    fixture f = fixture_make(config, 1, 50, 1, 5);
    plain p = plain_of(&f);
    plain_run(&p);
    assert_true(p.margin > 1e-6);
    floats scores = floats_make(50 * 11, 0), weight = floats_make(50 * 4, 0);
    int32_t idx[50 * 4];
    dsmoe_error error = {0};
    dsmoe_routing all = {scores.at, idx, weight.at};
    assert_int_equal(dsmoe_layer_route(f.layer, f.x, 50, all, &f.workspace, &error), DSMOE_OK);
    assert_true(worst_difference(scores.at, p.scores, 50 * 11) <= 2e-6);
    assert_true(worst_difference(weight.at, p.gates, 50 * 4) <= 2e-6);
    for (int i = 0; i < 50 * 4; i++) assert_int_equal(idx[i], p.chosen[i]);

    /* Any part of the routing can be left out. */
    floats again = floats_make(50 * 4, 0);
    assert_int_equal(dsmoe_layer_route(f.layer, f.x, 50, (dsmoe_routing){.topk_weight = again.at},
                                       &f.workspace, &error),
                     DSMOE_OK);
    assert_memory_equal(again.at, weight.at, 50 * 4 * sizeof(float));
    assert_int_equal(dsmoe_layer_route(f.layer, f.x, 50, (dsmoe_routing){0}, &f.workspace, &error),
                     DSMOE_OK);

    fixture_forward(&f); /* training makes the same decisions */
    dsmoe_routing kept = dsmoe_layer_saved_routing(f.layer, f.saved);
    assert_memory_equal(kept.scores, scores.at, 50 * 11 * sizeof(float));
    assert_memory_equal(kept.topk_weight, weight.at, 50 * 4 * sizeof(float));
    assert_memory_equal(kept.topk_idx, idx, sizeof idx);
    floats_free(again);
    floats_free(weight);
    floats_free(scores);
    plain_free(&p);
    fixture_free(&f);
}

/* With equal scores the lower index comes first, for every k. */
static void test_ties(void **state)
{
    (void)state;
    for (int64_t k = 1; k <= 9; k++) {
        fixture f = fixture_make(small_config(8, 4, 9, k, 0), 1, 70, 2, 1);
        memset(f.weights->gate, 0, 9 * 8 * sizeof(float));
        fixture_forward(&f);
        dsmoe_routing routing = dsmoe_layer_saved_routing(f.layer, f.saved);
        for (int64_t i = 0; i < 70 * k; i++) {
            assert_int_equal(routing.topk_idx[i], i % k);
            assert_true(routing.topk_weight[i] == routing.scores[0]);
            assert_true(fabsf(routing.topk_weight[i] - 1.0f / 9) < 1e-7f);
        }
        /* Two groups of equal scores: 3, 5 and 8 before the rest. */
        for (int64_t t = 0; t < 70; t++) f.x[t * 8] = 1.0f;
        f.weights->gate[3 * 8] = f.weights->gate[5 * 8] = f.weights->gate[8 * 8] = 2.0f;
        static const int order[] = {3, 5, 8, 0, 1, 2, 4, 6, 7};
        fixture_forward(&f);
        routing = dsmoe_layer_saved_routing(f.layer, f.saved);
        for (int64_t i = 0; i < 70 * k; i++) assert_int_equal(routing.topk_idx[i], order[i % k]);
        fixture_free(&f);
    }
}

/* A single gate value is not normalised; several are. */
static void test_norm_topk(void **state)
{
    (void)state;
    for (int64_t k = 1; k <= 3; k++) {
        dsmoe_layer_config config = small_config(8, 4, 6, k, 1);
        config.norm_topk_prob = true;
        fixture f = fixture_make(config, 1, 20, 1, 3);
        fixture_forward(&f);
        dsmoe_routing routing = dsmoe_layer_saved_routing(f.layer, f.saved);
        for (int64_t t = 0; t < 20; t++) {
            float sum = 0;
            for (int64_t s = 0; s < k; s++) sum += routing.topk_weight[t * k + s];
            if (k == 1)
                assert_true(sum == routing.scores[t * 6 + routing.topk_idx[t]] && sum < 1);
            else
                assert_true(fabsf(sum - 1) < 1e-6f);
        }
        fixture_free(&f);
    }
}

/* ---- NaN and infinity ----------------------------------------------------------------------- */

/* Every function must report it, with the token's number in the message. */
static void assert_nonfinite(fixture *f, const char *word)
{
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_layer_forward(f->layer, f->x, f->n_tokens, f->y, &f->workspace, &error),
                     DSMOE_ERROR_NONFINITE);
    assert_message(&error, DSMOE_ERROR_NONFINITE, word);
    error = (dsmoe_error){0};
    assert_int_equal(
        dsmoe_layer_route(f->layer, f->x, f->n_tokens, (dsmoe_routing){0}, &f->workspace, &error),
        DSMOE_ERROR_NONFINITE);
    assert_message(&error, DSMOE_ERROR_NONFINITE, word);
    error = (dsmoe_error){0};
    assert_int_equal(dsmoe_layer_forward_train(f->layer, f->x, f->n_sequences, f->sequence_length,
                                               f->y, f->saved, f->saved_size, NULL, &f->workspace,
                                               &error),
                     DSMOE_ERROR_NONFINITE);
    assert_message(&error, DSMOE_ERROR_NONFINITE, word);
    /* Nothing is left that backward could use. */
    assert_int_equal(dsmoe_layer_backward(f->layer, f->x, f->dy, f->saved, f->dx, f->gradients,
                                          false, &f->workspace, NULL),
                     DSMOE_ERROR_ARGUMENT);
}

static void test_nonfinite(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const int64_t places[] = {0, 1, 63, 64, 96, 149};
    fixture f = fixture_make(small_config(10, 4, 6, 2, 1), 3, 50, 2, 9);
    for (size_t i = 0; i < COUNT(values); i++) {
        for (size_t j = 0; j < COUNT(places); j++) {
            float *at = &f.x[places[j] * 10 + (int64_t)j], before = *at;
            char word[32];
            snprintf(word, sizeof word, "token %d ", (int)places[j]);
            *at = values[i];
            assert_nonfinite(&f, word);
            *at = before;
        }
        for (int64_t at = 0; at < 60; at += 7) { /* affects all tokens */
            float before = f.weights->gate[at];
            f.weights->gate[at] = values[i];
            assert_nonfinite(&f, "token 0 ");
            f.weights->gate[at] = before;
        }
    }
    fixture_forward(&f);
    fixture_backward(&f, false);
    fixture_free(&f);
}

/* Long inputs are processed in pieces, but the message counts from the start of the input. */
static void test_nonfinite_late(void **state)
{
    (void)state;
    fixture f = fixture_make(small_config(4, 2, 3, 1, 0), 1, 5000, 2, 9);
    f.x[4321 * 4 + 1] = NAN;
    assert_nonfinite(&f, "token 4321 ");
    fixture_free(&f);
}

/* ---- nothing to do -------------------------------------------------------------------------- */

static void check_empty(int64_t n_sequences, int64_t sequence_length, bool accumulate)
{
    dsmoe_layer_config config = small_config(400, 6, 4, 2, 1);
    config.n_device_groups = 2;
    config.device_loss_alpha = 0.05f;
    fixture f = fixture_make(config, n_sequences, sequence_length, 2, 1);
    dsmoe_error error = {0};
    assert_int_equal(f.n_tokens, 0);
    assert_int_equal(dsmoe_layer_forward(f.layer, NULL, 0, NULL, &f.workspace, &error), DSMOE_OK);
    assert_int_equal(dsmoe_layer_route(f.layer, NULL, 0, (dsmoe_routing){0}, &f.workspace, &error),
                     DSMOE_OK);
    f.losses = (dsmoe_layer_losses){1, 1};
    assert_int_equal(dsmoe_layer_forward_train(f.layer, NULL, n_sequences, sequence_length, NULL,
                                               f.saved, f.saved_size, &f.losses, &f.workspace,
                                               &error),
                     DSMOE_OK);
    assert_true(f.losses.aux_loss == 0 && f.losses.device_loss == 0);
    assert_int_equal(dsmoe_layer_backward(f.layer, NULL, NULL, f.saved, NULL, f.gradients,
                                          accumulate, &f.workspace, &error),
                     DSMOE_OK);
    tensor list[MAX_TENSORS];
    int n = layer_tensors(&config, f.gradients, list);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < list[i].n; j++)
            if (accumulate ? !is_guard(list[i].data[j]) : list[i].data[j] != 0.0f)
                fail_msg("%s of an empty batch", list[i].name);
    fixture_free(&f);
}

static void test_no_tokens(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        check_empty(0, 0, accumulate);
        check_empty(1, 0, accumulate);
        check_empty(0, 7, accumulate);
        check_empty(100000, 0, accumulate); /* sequences without tokens take no memory */
    }
}

/* The gradient of an expert that no token chose is exactly 0. */
static void test_starved_expert(void **state)
{
    (void)state;
    fixture f = fixture_make(small_config(12, 6, 5, 2, 1), 2, 30, 2, 4);
    for (int64_t t = 0; t < 60; t++) f.x[t * 12] = 4.0f;
    f.weights->gate[2 * 12] = f.weights->gate[4 * 12] = -50.0f;
    fixture_forward(&f);
    dsmoe_routing routing = dsmoe_layer_saved_routing(f.layer, f.saved);
    for (int i = 0; i < 120; i++) assert_true(routing.topk_idx[i] != 2 && routing.topk_idx[i] != 4);
    fixture_backward(&f, false);
    tensor list[MAX_TENSORS];
    int n = layer_tensors(&f.config, f.gradients, list);
    for (int i = 0; i < n; i++) {
        bool starved = strstr(list[i].name, "experts.2.") || strstr(list[i].name, "experts.4.");
        double magnitude = 0;
        for (int64_t j = 0; j < list[i].n; j++) magnitude = fmax(magnitude, fabs(list[i].data[j]));
        assert_true(starved ? magnitude == 0 : magnitude > 1e-6);
    }
    fixture_free(&f);
}

/* ---- calls out of order --------------------------------------------------------------------- */

static void test_backward_once(void **state)
{
    (void)state;
    fixture f = fixture_make(good_config(), 2, 5, 1, 6);
    dsmoe_error error = {0};
    memset(f.saved, 0, f.saved_size); /* there was no forward pass */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(dsmoe_layer_backward(f.layer, f.x, f.dy, f.saved, f.dx, f.gradients, false,
                                              &f.workspace, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_message(&error, DSMOE_ERROR_ARGUMENT, "backward");
        fixture_forward(&f);
        fixture_backward(&f, false); /* a second time is refused */
    }
    fixture_forward(&f);
    f.n_tokens = 10;
    assert_int_equal(dsmoe_layer_backward(f.layer, f.x, NULL, f.saved, f.dx, f.gradients, false,
                                          &f.workspace, &error),
                     DSMOE_ERROR_ARGUMENT);
    fixture_backward(&f, false); /* a refused call changes nothing */
    fixture_free(&f);
}

/* The message has both sizes, so that the caller sees the difference. */
static void assert_too_small(const dsmoe_error *error, size_t given, size_t needed)
{
    char word[32];
    snprintf(word, sizeof word, "%zu", given);
    assert_message(error, DSMOE_ERROR_ARGUMENT, word);
    snprintf(word, sizeof word, "%zu", needed);
    assert_message(error, DSMOE_ERROR_ARGUMENT, word);
}

static void test_too_small(void **state)
{
    (void)state;
    fixture f = fixture_make(good_config(), 2, 5, 3, 6);
    dsmoe_error error = {0};
    size_t infer = dsmoe_layer_workspace_size(f.layer, 10, 3);
    size_t train = dsmoe_layer_train_workspace_size(f.layer, 10, 3);
    dsmoe_workspace space = {f.workspace.memory, infer - 1, 3};
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, 10, f.y, &space, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_too_small(&error, infer - 1, infer);
    assert_int_equal(dsmoe_layer_route(f.layer, f.x, 10, (dsmoe_routing){0}, &space, &error),
                     DSMOE_ERROR_ARGUMENT);
    space.size = train - 1;
    assert_int_equal(dsmoe_layer_forward_train(f.layer, f.x, 2, 5, f.y, f.saved, f.saved_size, NULL,
                                               &space, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_too_small(&error, train - 1, train);
    assert_int_equal(dsmoe_layer_forward_train(f.layer, f.x, 2, 5, f.y, f.saved, f.saved_size - 1,
                                               NULL, &f.workspace, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_too_small(&error, f.saved_size - 1, f.saved_size);
    fixture_forward(&f);
    assert_int_equal(
        dsmoe_layer_backward(f.layer, f.x, f.dy, f.saved, f.dx, f.gradients, false, &space, &error),
        DSMOE_ERROR_ARGUMENT);
    assert_too_small(&error, train - 1, train);
    fixture_free(&f);
}

static void test_impossible_arguments(void **state)
{
    (void)state;
    fixture f = fixture_make(good_config(), 2, 5, 1, 6);
    dsmoe_workspace none = {0}, threadless = f.workspace;
    threadless.n_threads = 0;
    const dsmoe_workspace *w = &f.workspace;
    const dsmoe_status bad = DSMOE_ERROR_ARGUMENT;
    assert_int_equal(dsmoe_layer_forward(NULL, f.x, 1, f.y, w, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, -1, f.y, w, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, NULL, 1, f.y, w, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, 1, NULL, w, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, 1, f.y, NULL, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, 1, f.y, &none, NULL), bad);
    assert_int_equal(dsmoe_layer_forward(f.layer, f.x, 1, f.y, &threadless, NULL), bad);
    static const int64_t impossible[][2] = {
        {-1, 1}, {1, -1}, {-1, -1}, {INT64_MAX, 2}, {INT64_C(1) << 40, INT64_C(1) << 40}};
    for (size_t i = 0; i < COUNT(impossible); i++)
        assert_int_equal(dsmoe_layer_forward_train(f.layer, f.x, impossible[i][0], impossible[i][1],
                                                   f.y, f.saved, f.saved_size, NULL, w, NULL),
                         bad);
    assert_true(dsmoe_layer_forward_train(f.layer, f.x, INT64_MAX, 1, f.y, f.saved, f.saved_size,
                                          NULL, w, NULL) != DSMOE_OK);
    assert_int_equal(
        dsmoe_layer_backward(f.layer, f.x, f.dy, NULL, f.dx, f.gradients, false, w, NULL), bad);
    assert_int_equal(dsmoe_layer_workspace_size(f.layer, -1, 1), 0);
    assert_int_equal(dsmoe_layer_workspace_size(f.layer, 1, 0), 0);
    assert_int_equal(dsmoe_layer_workspace_size(NULL, 1, 1), 0);
    assert_int_equal(dsmoe_layer_train_workspace_size(f.layer, -1, 1), 0);
    assert_int_equal(dsmoe_layer_train_workspace_size(f.layer, INT64_MAX, 1), 0);
    assert_int_equal(dsmoe_layer_saved_size(f.layer, INT64_MAX), 0);
    assert_int_equal(dsmoe_layer_saved_size(NULL, 1), 0);
    fixture_free(&f);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void test_saved_size(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 7, 512, 4096};
    const dsmoe_layer_config configs[] = {small_config(64, 44, 16, 6, 2),
                                          small_config(33, 100, 5, 1, 0),
                                          small_config(128, 10, 60, 8, 1)};
    float number = 0;
    dsmoe_expert_weights expert = {&number, &number, &number}, experts[60];
    for (int i = 0; i < 60; i++) experts[i] = expert;
    const dsmoe_layer_weights weights = {
        .gate = &number, .experts = experts, .shared_experts = expert};
    for (size_t i = 0; i < COUNT(configs); i++)
        for (size_t j = 0; j < COUNT(tokens); j++) {
            const dsmoe_layer_config *c = &configs[i];
            dsmoe_layer *layer;
            assert_int_equal(dsmoe_layer_create(c, &weights, &layer, NULL), DSMOE_OK);
            int64_t k = c->num_experts_per_tok, active = k + c->n_shared_experts;
            int64_t kept = 2 * active * c->moe_intermediate_size + 4 * c->hidden_size;
            int64_t routing = c->n_routed_experts + 5 * k; /* scores; idx, weight, dispatch */
            int64_t allowed = 4 * tokens[j] * (kept + routing) + 4 * c->n_routed_experts + 2048;
            size_t size = dsmoe_layer_saved_size(layer, tokens[j]);
            assert_true(size > 0 && size <= (size_t)allowed);
            dsmoe_layer_free(layer);
        }
}

/* The workspace of inference has a limit. */
static void test_workspace_is_bounded(void **state)
{
    (void)state;
    fixture f = fixture_make(good_config(), 1, 1, 1, 1);
    size_t size = dsmoe_layer_workspace_size(f.layer, 1 << 14, 2);
    assert_int_equal(dsmoe_layer_workspace_size(f.layer, INT64_C(1) << 40, 2), size);
    assert_true(dsmoe_layer_workspace_size(f.layer, 16, 2) < size);
    assert_true(dsmoe_layer_workspace_size(f.layer, 1 << 14, 3) > size);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_sizes),   cmocka_unit_test(test_config_relations),
        cmocka_unit_test(test_config_default), cmocka_unit_test(test_config_words),
        cmocka_unit_test(test_config_groups),  cmocka_unit_test(test_config_huge),
        cmocka_unit_test(test_create_refuses), cmocka_unit_test(test_inference),
        cmocka_unit_test(test_routing),        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_norm_topk),      cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_nonfinite_late), cmocka_unit_test(test_no_tokens),
        cmocka_unit_test(test_starved_expert), cmocka_unit_test(test_backward_once),
        cmocka_unit_test(test_too_small),      cmocka_unit_test(test_impossible_arguments),
        cmocka_unit_test(test_saved_size),     cmocka_unit_test(test_workspace_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

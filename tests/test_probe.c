/* test_probe.c - the paper's probes: models that share the weights of another model, with some of a
 * token's experts masked, without shared experts, or with another number of active experts. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "moe/moe.h"
#include "naive_model.h"
#include "scratch.h"

enum { N_TOKENS = 33 };

static dsmoe_model *make_probe(const dsmoe_model *model, dsmoe_probe probe)
{
    dsmoe_error error = {0};
    dsmoe_model *probed = NULL;
    must(dsmoe_model_probe(model, &probe, &probed, &error), &error, "probe");
    assert_non_null(probed);
    return probed;
}

/* ---- against plain arithmetic --------------------------------------------------------------- */

typedef struct probe_case {
    const char *name;
    dsmoe_probe probe;
    bool norm_topk_prob;
    /* The effect on a model with 2 shared and 7 routed experts, 3 of them per token. */
    int64_t n_masked, n_shared, k;
} probe_case;

static const probe_case cases[] = {
    {"no probe", {.mask_top = 0}, false, 0, 2, 3},
    {"a share that rounds to none", {.mask_top = 0.07}, false, 0, 2, 3},
    {"one masked", {.mask_top = 0.0715}, false, 1, 2, 3},
    {"one masked, normalised", {.mask_top = 0.2}, true, 1, 2, 3},
    {"a half that rounds up", {.mask_top = 0.5}, false, 4, 2, 3},
    {"no shared experts", {.replace_shared = true}, false, 0, 0, 5},
    {"no shared experts, normalised", {.replace_shared = true}, true, 0, 0, 5},
    {"fewer", {.num_experts_per_tok = 2}, true, 0, 2, 2},
    {"one alone", {.num_experts_per_tok = 1}, true, 0, 2, 1},
    {"more", {.num_experts_per_tok = 7}, false, 0, 2, 7},
    {"masked and one alone", {.mask_top = 0.85, .num_experts_per_tok = 1}, true, 6, 2, 1},
    {"masked, no shared", {.mask_top = 0.3, .replace_shared = true}, false, 2, 0, 5},
    {"all three", {0.6, true, 1, false}, true, 4, 0, 3},
    {"masked before softmax", {0.5, false, 0, true}, false, 4, 2, 3},
    {"the same, no shared",
     {.mask_top = 0.3, .replace_shared = true, .mask_before_softmax = true},
     false,
     2,
     0,
     5},
    {"the same, normalised", {.mask_top = 0.2, .mask_before_softmax = true}, true, 1, 2, 3},
};

static void compare_rows(const char *name, dsmoe_sequence *sequence, const int32_t *tokens,
                         const naive_result *expected, int64_t vocab)
{
    float logits[64];
    assert_true(vocab <= (int64_t)COUNT(logits));
    for (int64_t done = 0; done < N_TOKENS;) {
        int64_t piece = done == 0 ? 17 : done < 20 ? 1 : N_TOKENS - done;
        prefill(sequence, tokens + done, piece, logits);
        done += piece;
        double worst = worst_difference(logits, expected->logits + (done - 1) * vocab, vocab);
        if (!(worst <= 1e-5)) fail_msg("%s: off by %g at token %d", name, worst, (int)done);
    }
}

static void check_case(const probe_case *c, const char *dtype, uint64_t seed)
{
    dsmoe_config config = made_config();
    config.norm_topk_prob = c->norm_topk_prob;
    made_model made = made_model_create(&config, dtype, seed);
    made_model_write(&made, directory, seed % 2);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, seed);
    made.config.n_shared_experts = c->n_shared;
    made.config.num_experts_per_tok = c->k;
    naive_result expected =
        naive_model_run_masked(&made, c->n_masked, c->probe.mask_before_softmax, tokens, N_TOKENS);
    if (expected.margin < 1e-6) fail_msg("%s: take another seed, experts tie", c->name);

    dsmoe_model *model = open_model(directory), *probed = make_probe(model, c->probe);
    const dsmoe_config *seen = dsmoe_model_config(probed);
    assert_int_equal(seen->n_shared_experts, c->n_shared);
    assert_int_equal(seen->num_experts_per_tok, c->k);
    assert_int_equal(seen->n_routed_experts, config.n_routed_experts);
    dsmoe_sequence *sequence = make_sequence(probed, N_TOKENS, 0, 1 + (int)(seed % 3));
    compare_rows(c->name, sequence, tokens, &expected, config.vocab_size);
    free_sequence(sequence);
    dsmoe_model_free(probed);
    dsmoe_model_free(model);
    naive_result_free(&expected);
    made_model_free(&made);
}

static void test_against_plain_arithmetic(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        check_case(&cases[i], "F32", 3 * i + 1);
        check_case(&cases[i], "BF16", 3 * i + 2);
    }
    made_model_remove(directory);
}

/* ---- the gate ------------------------------------------------------------------------------- */

/* With equal scores experts are ordered by index: the first are masked, the next are chosen. */
static void test_ties(void **state)
{
    (void)state;
    fixture f = fixture_make(small_config(16, 8, 6, 2, 0), 1, 5, 2, 11);
    int32_t idx[5 * 2];
    float weight[5 * 2];
    dsmoe_routing routing = {.topk_idx = idx, .topk_weight = weight};
    for (int64_t i = 0; i < 6 * 16; i++) f.weights->gate[i] = 0;
    for (int64_t n_masked = 0; n_masked <= 4; n_masked++) {
        f.layer->n_masked = n_masked;
        assert_int_equal(dsmoe_layer_route(f.layer, f.x, 5, routing, &f.workspace, NULL), DSMOE_OK);
        for (int t = 0; t < 5; t++) {
            for (int s = 0; s < 2; s++) {
                assert_int_equal(idx[2 * t + s], n_masked + s);
                assert_float_equal(weight[2 * t + s], 1.0 / 6, 1e-7); /* softmax over all six */
            }
        }
    }
    fixture_free(&f);
}

/* If only one expert is allowed and softmax leaves the others out, its gate value is 1. */
static void test_masked_before_softmax(void **state)
{
    (void)state;
    fixture f = fixture_make(small_config(16, 8, 6, 1, 0), 1, 5, 2, 12);
    int32_t idx[5];
    float weight[5], scores[5 * 6];
    dsmoe_routing routing = {.scores = scores, .topk_idx = idx, .topk_weight = weight};
    f.layer->n_masked = 5;
    for (int masks_first = 0; masks_first < 2; masks_first++) {
        f.layer->masks_first = masks_first;
        assert_int_equal(dsmoe_layer_route(f.layer, f.x, 5, routing, &f.workspace, NULL), DSMOE_OK);
        for (int t = 0; t < 5; t++) {
            double sum = 0;
            for (int i = 0; i < 6; i++) sum += scores[6 * t + i];
            assert_float_equal(sum, 1, 1e-6);
            assert_float_equal(weight[t], scores[6 * t + idx[t]], 0);
            if (masks_first)
                assert_float_equal(weight[t], 1, 1e-6);
            else
                assert_true(weight[t] < 1.0f / 6); /* the lowest of six */
        }
    }
    fixture_free(&f);
}

typedef struct seen_routing {
    int n_layers;
    int32_t idx[N_TOKENS * 3];
} seen_routing;

static void keep_first_layer(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                             const dsmoe_routing *routing)
{
    (void)layer;
    (void)first;
    seen_routing *seen = context;
    assert_int_equal(n_tokens, N_TOKENS);
    if (seen->n_layers++ == 0) /* both models are the same up to here */
        memcpy(seen->idx, routing->topk_idx, sizeof seen->idx);
}

/* Masking two experts of a token shifts its choices by two places in the same order. */
static void test_order(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 21);
    made_model_write(&made, directory, false);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, 21);
    dsmoe_model *model = open_model(directory);
    dsmoe_model *masked = make_probe(model, (dsmoe_probe){.mask_top = 2.0 / 7});
    seen_routing seen[2] = {0};
    const dsmoe_model *const models[] = {model, masked};
    for (int i = 0; i < 2; i++) {
        dsmoe_sequence *sequence = make_sequence(models[i], N_TOKENS, 0, 2);
        dsmoe_sequence_watch(sequence, keep_first_layer, &seen[i]);
        prefill(sequence, tokens, N_TOKENS, NULL);
        assert_int_equal(seen[i].n_layers, 2);
        free_sequence(sequence);
    }
    for (int t = 0; t < N_TOKENS; t++) {
        assert_int_equal(seen[0].idx[3 * t + 2], seen[1].idx[3 * t]);
        for (int s = 1; s < 3; s++)
            for (int of = 0; of < 3; of++)
                assert_int_not_equal(seen[0].idx[3 * t + of], seen[1].idx[3 * t + s]);
    }
    dsmoe_model_free(masked);
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

/* ---- together with the model ---------------------------------------------------------------- */

static void assert_same_list(const dsmoe_model *a, const dsmoe_model *b)
{
    assert_int_equal(dsmoe_model_tensor_count(a), dsmoe_model_tensor_count(b));
    for (size_t i = 0; i < dsmoe_model_tensor_count(a); i++) {
        dsmoe_tensor_info one = dsmoe_model_tensor(a, i), other = dsmoe_model_tensor(b, i);
        assert_string_equal(one.name, other.name);
        assert_int_equal(one.dtype, other.dtype);
        assert_int_equal(one.n_dims, other.n_dims);
        assert_memory_equal(one.shape, other.shape, sizeof one.shape);
        assert_int_equal(one.size, other.size);
    }
    assert_int_equal(dsmoe_model_bytes_per_token(a), dsmoe_model_bytes_per_token(b));
}

/* A probe that changes nothing gives the model itself, to the bit, for any number of threads. */
static void test_nothing_changed(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "BF16", 31);
    made_model_write(&made, directory, true);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, 31);
    dsmoe_model *model = open_model(directory), *same = make_probe(model, (dsmoe_probe){0});
    assert_same_list(model, same);
    assert_int_equal(dsmoe_model_extra_count(same), 0);
    assert_memory_equal(dsmoe_model_generation_config(same), dsmoe_model_generation_config(model),
                        sizeof(dsmoe_generation_config));
    float expected[64], logits[64];
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        dsmoe_sequence *a = make_sequence(model, N_TOKENS, 0, 2);
        dsmoe_sequence *b = make_sequence(same, N_TOKENS, 0, n_threads);
        prefill(a, tokens, N_TOKENS, expected);
        prefill(b, tokens, N_TOKENS, logits);
        assert_same_bits(logits, expected, (size_t)config.vocab_size, "a probe of nothing");
        free_sequence(a);
        free_sequence(b);
    }
    dsmoe_model_free(same);
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

/* Octets are in the order of the kernels that made them. A probe must use the same kernels as its model,
 * even if others are the best by now. */
static void test_same_kernels(void **state)
{
    (void)state;
    const kernels *const *sets;
    int n_sets = kernels_all(&sets);
    const char *set_before = getenv("DSMOE_KERNELS");
    char *before = set_before ? strdup(set_before) : NULL;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 5);
    made_model_write(&made, directory, false);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, 5);
    for (int i = 0; i < n_sets; i++) {
        setenv("DSMOE_KERNELS", sets[i]->name, 1);
        dsmoe_model *model = open_model(directory);
        setenv("DSMOE_KERNELS", sets[n_sets - 1 - i]->name, 1);
        dsmoe_model *probed = make_probe(model, (dsmoe_probe){0});
        assert_ptr_equal(probed->kernels, sets[i]);
        for (int64_t j = 0; j < config.num_hidden_layers; j++)
            if (probed->layers[j]) assert_ptr_equal(probed->layers[j]->kernels, sets[i]);
        float lent[64], own[64];
        dsmoe_sequence *sequence = make_sequence(model, N_TOKENS, 0, 1);
        prefill(sequence, tokens, N_TOKENS, own);
        free_sequence(sequence);
        sequence = make_sequence(probed, N_TOKENS, 0, 1);
        prefill(sequence, tokens, N_TOKENS, lent);
        free_sequence(sequence);
        assert_same_bits(lent, own, (size_t)config.vocab_size, "lent weights");
        dsmoe_model_free(probed);
        dsmoe_model_free(model);
    }
    made_model_free(&made);
    made_model_remove(directory);
    if (before)
        setenv("DSMOE_KERNELS", before, 1);
    else
        unsetenv("DSMOE_KERNELS");
    free(before);
}

/* Sequences of the model and of two probes, run in turn token by token, do not affect each other. */
static void test_side_by_side(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 41);
    made_model_write(&made, directory, false);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, 41);
    dsmoe_model *model = open_model(directory);
    dsmoe_model *models[] = {model, make_probe(model, (dsmoe_probe){.mask_top = 0.4}),
                             make_probe(model, (dsmoe_probe){.replace_shared = true})};
    float alone[COUNT(models)][64], logits[COUNT(models)][64];
    dsmoe_sequence *sequences[COUNT(models)];
    for (size_t i = 0; i < COUNT(models); i++) {
        dsmoe_sequence *sequence = make_sequence(models[i], N_TOKENS, 0, 1);
        for (int t = 0; t < N_TOKENS; t++) decode(sequence, tokens[t], alone[i]);
        free_sequence(sequence);
        sequences[i] = make_sequence(models[i], N_TOKENS, 0, 2);
    }
    for (int t = 0; t < N_TOKENS; t++)
        for (size_t i = 0; i < COUNT(models); i++) decode(sequences[i], tokens[t], logits[i]);
    for (size_t i = 0; i < COUNT(models); i++) {
        assert_same_bits(logits[i], alone[i], (size_t)config.vocab_size, "side by side");
        assert_memory_not_equal(alone[i], alone[(i + 1) % COUNT(models)], sizeof(float) * 61);
        free_sequence(sequences[i]);
    }
    for (size_t i = COUNT(models); i-- > 0;) dsmoe_model_free(models[i]);
    made_model_free(&made);
    made_model_remove(directory);
}

/* The tensors and bytes of a probed model: no shared experts, and the part of the routed experts that it
 * uses. */
static void test_listing(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F16", 51);
    made_model_write(&made, directory, false);
    dsmoe_model *model = open_model(directory);
    dsmoe_model *replaced = make_probe(model, (dsmoe_probe){.replace_shared = true});
    dsmoe_model *fewer = make_probe(model, (dsmoe_probe){.num_experts_per_tok = 1});
    /* three matrices of the joined shared experts in each of two MoE layers */
    assert_int_equal(dsmoe_model_tensor_count(replaced), dsmoe_model_tensor_count(model) - 6);
    for (size_t i = 0; i < dsmoe_model_tensor_count(replaced); i++)
        assert_null(strstr(dsmoe_model_tensor(replaced, i).name, "shared"));
    assert_null(dsmoe_model_tensor(replaced, dsmoe_model_tensor_count(replaced)).name);
    assert_int_equal(dsmoe_model_tensor_count(fewer), dsmoe_model_tensor_count(model));
    /* two routed experts read as much as the two shared ones; with two fewer, that much less is read */
    size_t two = 2 * 2 * 3 * 42 * 13 * 2, whole = dsmoe_model_bytes_per_token(model);
    assert_int_equal(dsmoe_model_bytes_per_token(replaced), whole);
    assert_int_equal(dsmoe_model_bytes_per_token(fewer), whole - two);
    dsmoe_model_free(fewer);
    dsmoe_model_free(replaced);
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

/* ---- refused probes ------------------------------------------------------------------------- */

static void assert_fails(const dsmoe_model *model, dsmoe_probe probe, dsmoe_status expected,
                         const char *word)
{
    dsmoe_error error = {0};
    dsmoe_model *probed = (dsmoe_model *)&error; /* must be set to NULL */
    dsmoe_status status = dsmoe_model_probe(model, &probe, &probed, &error);
    if (status != expected || probed)
        fail_msg("mask_top %g, num_experts_per_tok %lld: not refused", probe.mask_top,
                 (long long)probe.num_experts_per_tok);
    if (!strstr(error.message, word)) fail_msg("'%s' does not say '%s'", error.message, word);
    assert_int_equal(dsmoe_model_probe(model, &probe, &probed, NULL), expected);
}

static void assert_refused(const dsmoe_model *model, dsmoe_probe probe, const char *word)
{
    assert_fails(model, probe, DSMOE_ERROR_ARGUMENT, word);
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 61);
    made_model_write(&made, directory, false);
    dsmoe_model *model = open_model(directory), *probed;
    const double shares[] = {NAN, INFINITY, -INFINITY, -1e-9, -1, 1, 1.5, 1e300};
    for (size_t i = 0; i < COUNT(shares); i++)
        assert_refused(model, (dsmoe_probe){.mask_top = shares[i]}, "mask_top");
    const int64_t numbers[] = {8, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT(numbers); i++)
        assert_refused(model, (dsmoe_probe){.num_experts_per_tok = numbers[i]},
                       "num_experts_per_tok");
    assert_refused(model, (dsmoe_probe){.mask_top = 0.65}, "only 2 of 7");
    assert_refused(model, (dsmoe_probe){.mask_top = 0.999999, .num_experts_per_tok = 1}, "only 0");
    assert_refused(model, (dsmoe_probe){.replace_shared = true, .num_experts_per_tok = 6},
                   "use 8 routed experts");
    assert_refused(model, (dsmoe_probe){.mask_top = 0.4, .replace_shared = true}, "only 4 of 7");
    dsmoe_probe none = {0};
    assert_int_equal(dsmoe_model_probe(NULL, &none, &probed, NULL), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_probe(model, NULL, &probed, NULL), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_probe(model, &none, NULL, NULL), DSMOE_ERROR_ARGUMENT);
    dsmoe_model *replaced = make_probe(model, (dsmoe_probe){.replace_shared = true});
    assert_refused(replaced, (dsmoe_probe){.replace_shared = true}, "no shared experts");
    dsmoe_model_free(replaced);
    dsmoe_model_free(model);
    made_model_free(&made);

    /* dense by its configuration, or because first_k_dense_replace covers every layer */
    for (int which = 0; which < 2; which++) {
        config = made_config();
        if (which == 0) config.n_routed_experts = config.n_shared_experts = 0;
        if (which == 0) config.num_experts_per_tok = 0;
        config.first_k_dense_replace = config.num_hidden_layers;
        made = made_model_create(&config, "F32", 62);
        made_model_write(&made, directory, false);
        model = open_model(directory);
        assert_fails(model, none, DSMOE_ERROR_CONFIG, "dense");
        dsmoe_model_free(model);
        made_model_free(&made);
    }
    made_model_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_plain_arithmetic),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_masked_before_softmax),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_nothing_changed),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_same_kernels),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

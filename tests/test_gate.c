/* test_gate.c - the gate alone: every way to score, choose and weight against plain double arithmetic,
 * also with equal scores and with experts that a probe masks; the same bits alone and in a batch; and NaN
 * and infinity. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "moe/train.h"
#include "support.h"

static const char *const scoring_funcs[] = {"softmax", "sigmoid"};
static const char *const topk_methods[] = {"greedy", "group_limited_greedy", "noaux_tc"};

enum { COMBINATIONS = 2 * 3 * 2 };

static void set_combination(dsmoe_layer_config *c, int combination)
{
    c->scoring_func = scoring_funcs[combination % 2];
    c->topk_method = topk_methods[combination / 2 % 3];
    c->norm_topk_prob = combination / 6;
}

/* ---- random gates ----------------------------------------------------------------------------- */

/* Logits and biases come from small pools, so that experts and groups are often equal. */
enum { TOKENS = 8, MOST = 24, POOL = 7, BIASES = 3 };

/* A number from 0 to n - 1. */
static int64_t pick(uint64_t *seed, int64_t n)
{
    float value;
    rng_uniform(&value, 1, (*seed)++, 0, 0, 0.0f, (float)n);
    return (int64_t)value < n ? (int64_t)value : n - 1;
}

static dsmoe_layer_config random_config(int combination, uint64_t *seed)
{
    int64_t n_group = 1 + pick(seed, 6), size = 2 + pick(seed, MOST / n_group - 1);
    int64_t topk_group = 1 + pick(seed, n_group), choices = topk_group * size;
    int64_t k = pick(seed, 4) == 0 ? 1 : 1 + pick(seed, choices < 8 ? choices : 8);
    dsmoe_layer_config c = small_config(TOKENS, 1, n_group * size, k, 0);
    set_combination(&c, combination);
    c.n_group = n_group;
    c.topk_group = topk_group;
    c.routed_scaling_factor = pick(seed, 3) == 0 ? 0.0f : 0.5f + (float)pick(seed, 16);
    return c;
}

/* One gate for TOKENS tokens. x is the identity, so column t of the router holds the logits of token t. */
static fixture random_gate(const dsmoe_layer_config *c, uint64_t *seed)
{
    fixture f = fixture_make(*c, 1, TOKENS, 1, (*seed)++);
    float pool[POOL], biases[BIASES];
    fill_random(pool, POOL, (*seed)++, 2.0);
    fill_random(biases, BIASES, (*seed)++, 0.3);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t i = 0; i < TOKENS; i++) f.x[t * TOKENS + i] = t == i;
    for (int64_t i = 0; i < c->n_routed_experts * TOKENS; i++)
        f.weights->gate[i] = pool[pick(seed, POOL)];
    for (int64_t i = 0; f.weights->e_score_correction_bias && i < c->n_routed_experts; i++)
        f.weights->e_score_correction_bias[i] = biases[pick(seed, BIASES)];
    return f;
}

/* ---- equal or clearly apart -------------------------------------------------------------------- */

typedef struct token_case {
    double logits[MOST], bias[MOST];
    bool gone[MOST]; /* masked by a probe */
    double scores[MOST], gates[MOST];
    int64_t chosen[MOST];
} token_case;

static double key_of(const token_case *t, int64_t i) { return t->scores[i] + t->bias[i]; }

static token_case token_of(const fixture *f, int64_t token, int64_t n_masked)
{
    token_case t = {0};
    int64_t n = f->config.n_routed_experts;
    for (int64_t i = 0; i < n; i++) {
        t.scores[i] = t.logits[i] = f->weights->gate[i * TOKENS + token];
        if (f->weights->e_score_correction_bias) t.bias[i] = f->weights->e_score_correction_bias[i];
    }
    plain_gate(&f->config, t.bias, n_masked, t.scores, t.chosen, t.gates);
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < n; j++)
            before += key_of(&t, j) > key_of(&t, i) || (key_of(&t, j) == key_of(&t, i) && j < i);
        t.gone[i] = before < n_masked;
    }
    return t;
}

/* Two keys, if they come from the same numbers, are equal in float32 and in double alike. -1 is no
 * expert. */
static bool same_origin(const token_case *t, int64_t i, int64_t j)
{
    if (i < 0 || j < 0) return i == j;
    return t->logits[i] == t->logits[j] && t->bias[i] == t->bias[j];
}

static bool are_apart(double a, double b) { return fabs(a - b) > 1e-5; }

/* Finds the two best experts of a group that are not masked, -1 if there is none; returns the sum of their
 * keys. */
static double best_two(const token_case *t, int64_t first, int64_t size, int64_t best[2])
{
    best[0] = best[1] = -1;
    for (int64_t i = first; i < first + size; i++) {
        if (t->gone[i]) continue;
        if (best[0] < 0 || key_of(t, i) > key_of(t, best[0])) {
            best[1] = best[0];
            best[0] = i;
        } else if (best[1] < 0 || key_of(t, i) > key_of(t, best[1])) {
            best[1] = i;
        }
    }
    return (best[0] < 0 ? -100 : key_of(t, best[0])) + (best[1] < 0 ? 0 : key_of(t, best[1]));
}

static bool is_clear(const dsmoe_layer_config *c, const token_case *t)
{
    int64_t size = c->n_routed_experts / c->n_group, a[2], b[2];
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        for (int64_t j = 0; j < i; j++)
            if (!same_origin(t, i, j) && !are_apart(key_of(t, i), key_of(t, j))) return false;
    for (int64_t g = 0; g < c->n_group; g++)
        for (int64_t h = 0; h < g; h++) {
            double of_g = best_two(t, g * size, size, a), of_h = best_two(t, h * size, size, b);
            bool same = same_origin(t, a[0], b[0]) && same_origin(t, a[1], b[1]);
            if (!same && !are_apart(of_g, of_h)) return false;
        }
    return true;
}

/* ---- against plain arithmetic ------------------------------------------------------------------ */

/* Returns how many tokens could be compared. */
static int compare(fixture *f, int64_t n_masked)
{
    const dsmoe_layer_config *c = &f->config;
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok;
    float scores[TOKENS * MOST], weight[TOKENS * MOST];
    int32_t idx[TOKENS * MOST];
    dsmoe_error error = {0};
    f->layer->n_masked = n_masked;
    assert_int_equal(dsmoe_layer_route(f->layer, f->x, TOKENS, (dsmoe_routing){scores, idx, weight},
                                       &f->workspace, &error),
                     DSMOE_OK);
    int n_compared = 0;
    for (int64_t token = 0; token < TOKENS; token++) {
        token_case t = token_of(f, token, n_masked);
        if (worst_difference(scores + token * n, t.scores, n) > 1e-6) fail_msg("scores are off");
        if (!is_clear(c, &t)) continue;
        n_compared++;
        for (int64_t s = 0; s < k; s++)
            if (idx[token * k + s] != t.chosen[s])
                fail_msg("%s, %s: choice %d of %d experts in %d groups is %d, not %d",
                         c->scoring_func, c->topk_method, (int)s, (int)n, (int)c->n_group,
                         (int)idx[token * k + s], (int)t.chosen[s]);
        if (worst_difference(weight + token * k, t.gates, k) > 1e-6) fail_msg("weights are off");
    }
    return n_compared;
}

static void test_against_plain(void **state)
{
    (void)state;
    enum { CONFIGS = 80 };
    uint64_t seed = 1;
    for (int combination = 0; combination < COMBINATIONS; combination++) {
        int n_compared = 0;
        for (int i = 0; i < CONFIGS; i++) {
            dsmoe_layer_config c = random_config(combination, &seed);
            fixture f = random_gate(&c, &seed);
            n_compared += compare(&f, 0);
            fixture_free(&f);
        }
        if (n_compared < CONFIGS * TOKENS / 2) fail_msg("only %d tokens are clear", n_compared);
    }
}

/* Chooses more experts per token, as a probe without shared experts does; perhaps more than topk_group
 * groups have. */
static void grow(fixture *f, int64_t k)
{
    f->config.num_experts_per_tok = f->layer->config.num_experts_per_tok = k;
    f->workspace.size = dsmoe_layer_workspace_size(f->layer, TOKENS, 1);
    f->workspace.memory = realloc(f->workspace.memory, f->workspace.size);
    assert_non_null(f->workspace.memory);
}

/* Also if the best groups have too few experts left, or never had enough. */
static void test_masked(void **state)
{
    (void)state;
    enum { CONFIGS = 80 };
    uint64_t seed = 100000;
    for (int combination = 0; combination < COMBINATIONS; combination++) {
        int n_compared = 0;
        for (int i = 0; i < CONFIGS; i++) {
            dsmoe_layer_config c = random_config(combination, &seed);
            fixture f = random_gate(&c, &seed);
            int64_t n = c.n_routed_experts, k = c.num_experts_per_tok;
            int64_t n_masked = pick(&seed, n - k + 1);
            if (i % 4 == 0) grow(&f, k + 3 < n - n_masked ? k + 3 : n - n_masked);
            n_compared += compare(&f, n_masked);
            fixture_free(&f);
        }
        if (n_compared < CONFIGS * TOKENS / 2) fail_msg("only %d tokens are clear", n_compared);
    }
}

/* ---- ties -------------------------------------------------------------------------------------- */

/* All experts are equal: the first groups are kept, and the first experts in them. */
static void test_all_equal(void **state)
{
    (void)state;
    for (int combination = 0; combination < COMBINATIONS; combination++) {
        dsmoe_layer_config c = small_config(TOKENS, 1, 12, 5, 0);
        set_combination(&c, combination);
        c.n_group = 4;
        c.topk_group = 2;
        fixture f = fixture_make(c, 1, TOKENS, 2, 1);
        int32_t idx[TOKENS * 5];
        dsmoe_routing routing = {.topk_idx = idx};
        memset(f.weights->gate, 0, 12 * TOKENS * sizeof(float));
        for (int i = 0; f.weights->e_score_correction_bias && i < 12; i++)
            f.weights->e_score_correction_bias[i] = -3.0f; /* negative keys are valid too */
        assert_int_equal(dsmoe_layer_route(f.layer, f.x, TOKENS, routing, &f.workspace, NULL),
                         DSMOE_OK);
        for (int i = 0; i < TOKENS * 5; i++) assert_int_equal(idx[i], i % 5);
        fixture_free(&f);
    }
}

/* V2 and V3 rate the same groups differently: V2 by the best expert, V3 by the two best. */
static void test_groups_by_hand(void **state)
{
    (void)state;
    static const float logits[] = {0, 3, 0, 2, 2, 0, -1, 2.5f, -1}; /* groups of three */
    static const struct {
        const char *method;
        int64_t topk_group;
        int32_t idx[2];
    } cases[] = {{"greedy", 1, {1, 7}},
                 {"group_limited_greedy", 1, {1, 0}},
                 {"group_limited_greedy", 2, {1, 7}},
                 {"noaux_tc", 1, {3, 4}},
                 {"noaux_tc", 2, {1, 3}},
                 {"noaux_tc", 3, {1, 7}}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_layer_config c = small_config(1, 1, 9, 2, 0);
        c.scoring_func = "sigmoid";
        c.topk_method = cases[i].method;
        c.n_group = 3;
        c.topk_group = cases[i].topk_group;
        fixture f = fixture_make(c, 1, 1, 1, 1);
        memcpy(f.weights->gate, logits, sizeof logits);
        if (f.weights->e_score_correction_bias)
            memset(f.weights->e_score_correction_bias, 0, sizeof logits);
        f.x[0] = 1.0f;
        int32_t idx[2];
        dsmoe_routing routing = {.topk_idx = idx};
        assert_int_equal(dsmoe_layer_route(f.layer, f.x, 1, routing, &f.workspace, NULL), DSMOE_OK);
        for (int s = 0; s < 2; s++) assert_int_equal(idx[s], cases[i].idx[s]);
        fixture_free(&f);
    }
}

/* ---- tokens alone and together ----------------------------------------------------------------- */

static void test_company(void **state)
{
    (void)state;
    enum { N = 150, HIDDEN = 40, EXPERTS = 36, K = 4 };
    static float scores[N * EXPERTS], weight[N * K];
    static int32_t idx[N * K];
    for (int combination = 0; combination < COMBINATIONS; combination++) {
        dsmoe_layer_config c = small_config(HIDDEN, 2, EXPERTS, K, 0);
        set_combination(&c, combination);
        c.n_group = 6;
        c.topk_group = 3;
        c.routed_scaling_factor = 2.446f;
        fixture f = fixture_make(c, 1, N, 2, 7);
        dsmoe_routing all = {scores, idx, weight};
        assert_int_equal(dsmoe_layer_route(f.layer, f.x, N, all, &f.workspace, NULL), DSMOE_OK);
        for (int64_t t = 0; t < N; t++) {
            float alone[EXPERTS], weight_alone[K];
            int32_t idx_alone[K];
            dsmoe_routing one = {alone, idx_alone, weight_alone};
            assert_int_equal(
                dsmoe_layer_route(f.layer, f.x + t * HIDDEN, 1, one, &f.workspace, NULL), DSMOE_OK);
            assert_memory_equal(alone, scores + t * EXPERTS, sizeof alone);
            assert_memory_equal(idx_alone, idx + t * K, sizeof idx_alone);
            assert_memory_equal(weight_alone, weight + t * K, sizeof weight_alone);
        }
        fixture_free(&f);
    }
}

/* ---- NaN and infinity -------------------------------------------------------------------------- */

static void assert_spoilt(fixture *f, const char *word)
{
    dsmoe_error error = {0};
    assert_int_equal(
        dsmoe_layer_route(f->layer, f->x, f->n_tokens, (dsmoe_routing){0}, &f->workspace, &error),
        DSMOE_ERROR_NONFINITE);
    if (!strstr(error.message, word)) fail_msg("\"%s\" has no \"%s\"", error.message, word);
    assert_int_equal(dsmoe_layer_forward_train(f->layer, f->x, 1, f->n_tokens, f->y, f->saved,
                                               f->saved_size, NULL, &f->workspace, &error),
                     DSMOE_ERROR_NONFINITE);
    /* The routing that is left must still be safe to use. */
    dsmoe_routing routing = dsmoe_layer_saved_routing(f->layer, f->saved);
    for (int64_t i = 0; i < f->n_tokens * f->config.num_experts_per_tok; i++)
        assert_in_range(routing.topk_idx[i], 0, f->config.n_routed_experts - 1);
}

static void test_nonfinite(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int combination = 0; combination < COMBINATIONS; combination++) {
        dsmoe_layer_config c = small_config(6, 2, 9, 2, 0);
        set_combination(&c, combination);
        c.n_group = 3;
        c.topk_group = 2;
        fixture f = fixture_make(c, 1, 5, 2, 3);
        float *bias = f.weights->e_score_correction_bias;
        for (size_t i = 0; i < COUNT(values); i++) {
            float before = f.x[3 * 6 + 1];
            f.x[3 * 6 + 1] = values[i];
            assert_spoilt(&f, "token 3 ");
            f.x[3 * 6 + 1] = before;
            before = f.weights->gate[8 * 6];
            f.weights->gate[8 * 6] = values[i];
            assert_spoilt(&f, "token 0 ");
            f.weights->gate[8 * 6] = before;
            if (!bias) continue;
            before = bias[4];
            bias[4] = values[i];
            assert_spoilt(&f, "token 0 ");
            bias[4] = before;
        }
        fixture_forward(&f);
        fixture_free(&f);
    }
}

/* Logits so large that scores are 0 or 1 are still valid. */
static void test_extremes(void **state)
{
    (void)state;
    static const float sizes[] = {90.0f, 1e4f, 1e30f};
    for (int combination = 0; combination < COMBINATIONS; combination++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            dsmoe_layer_config c = small_config(1, 1, 8, 3, 0);
            set_combination(&c, combination);
            c.n_group = 4;
            c.topk_group = 2;
            fixture f = fixture_make(c, 1, 2, 1, 3);
            for (int j = 0; j < 8; j++) f.weights->gate[j] = sizes[i];
            f.x[0] = 1.0f;
            f.x[1] = -1.0f; /* all its sigmoid scores are 0 */
            fixture_forward(&f);
            fixture_backward(&f, false);
            dsmoe_routing routing = dsmoe_layer_saved_routing(f.layer, f.saved);
            for (int j = 0; j < 2 * 3; j++) assert_true(isfinite(routing.topk_weight[j]));
            assert_true(isfinite(f.losses.aux_loss));
            assert_true(isfinite(f.dx[0]) && isfinite(f.dx[1]));
            for (int j = 0; j < 8; j++) assert_true(isfinite(f.gradients->gate[j]));
            fixture_free(&f);
        }
}

/* ---- the bias ---------------------------------------------------------------------------------- */

static void test_bias(void **state)
{
    (void)state;
    dsmoe_layer_config c = small_config(6, 2, 9, 2, 1);
    dsmoe_layer_weights *weights;
    assert_int_equal(dsmoe_layer_weights_create(&c, &weights, NULL), DSMOE_OK);
    assert_null(weights->e_score_correction_bias);
    assert_int_equal(dsmoe_layer_weights_init(&c, weights, 0.1f, 1, 1, NULL), DSMOE_OK);
    dsmoe_layer_weights_free(weights);

    c.topk_method = "noaux_tc";
    assert_int_equal(dsmoe_layer_weights_create(&c, &weights, NULL), DSMOE_OK);
    for (int i = 0; i < 9; i++) assert_true(weights->e_score_correction_bias[i] == 0.0f);
    fill_guard(weights->e_score_correction_bias, 9);
    assert_int_equal(dsmoe_layer_weights_init(&c, weights, 0.1f, 1, 1, NULL), DSMOE_OK);
    for (int i = 0; i < 9; i++) assert_true(weights->e_score_correction_bias[i] == 0.0f);
    dsmoe_layer_weights_free(weights);

    /* A layer uses the caller's bias array, so changes by training take effect immediately. */
    fixture f = fixture_make(c, 1, 4, 1, 5);
    int32_t idx[4 * 2];
    f.weights->e_score_correction_bias[7] = 5.0f;
    assert_int_equal(
        dsmoe_layer_route(f.layer, f.x, 4, (dsmoe_routing){.topk_idx = idx}, &f.workspace, NULL),
        DSMOE_OK);
    for (int t = 0; t < 4; t++) assert_int_equal(idx[2 * t], 7);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_plain), cmocka_unit_test(test_masked),
        cmocka_unit_test(test_all_equal),     cmocka_unit_test(test_groups_by_hand),
        cmocka_unit_test(test_company),       cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_extremes),      cmocka_unit_test(test_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

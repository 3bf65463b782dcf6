/* test_gradients.c - every gradient against finite differences of the whole objective
 *   L = sum(y*dy) + aux_loss + device_loss
 * computed in double by the plain layer of support.c, which shares no code with the library. The counts f_i
 * of the balance losses are step functions, so differences see no gradient through them, as in the paper.
 * No top-k decision may be so close to a tie that a small change flips it. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gradient_case {
    const char *name;
    int64_t n_routed, k, n_shared, n_device_groups;
    bool norm_topk_prob, seq_aux;
    float aux_loss_alpha, device_loss_alpha;
} gradient_case;

static const gradient_case cases[] = {
    {"plain", 6, 2, 1, 0, false, true, 0.0f, 0.0f},
    {"aux per sequence", 6, 2, 1, 0, false, true, 0.1f, 0.0f},
    {"aux over the batch", 6, 3, 1, 0, false, false, 0.1f, 0.0f},
    {"norm_topk_prob", 6, 3, 1, 0, true, true, 0.1f, 0.0f},
    {"top-1", 5, 1, 1, 0, false, true, 0.1f, 0.0f},
    {"top-1 with norm_topk_prob", 5, 1, 1, 0, true, true, 0.1f, 0.0f},
    {"all experts", 4, 4, 1, 2, true, false, 0.1f, 0.05f},
    {"no shared expert", 6, 2, 0, 0, false, true, 0.1f, 0.0f},
    {"two shared experts", 6, 2, 2, 0, true, true, 0.1f, 0.0f},
    {"device groups", 6, 2, 2, 2, false, true, 0.1f, 0.05f},
    {"device groups, batch aux, norm", 6, 3, 0, 2, true, false, 0.1f, 0.05f},
    {"device groups alone", 6, 2, 1, 2, false, true, 0.0f, 0.05f},
    {"one device group", 6, 2, 1, 1, false, true, 0.0f, 0.05f},
};

enum { HIDDEN = 7, WIDTH = 5, SEQUENCES = 2, LENGTH = 4, SEED = 2401 };

static fixture make_case(const gradient_case *c, uint64_t seed)
{
    dsmoe_layer_config config = small_config(HIDDEN, WIDTH, c->n_routed, c->k, c->n_shared);
    config.norm_topk_prob = c->norm_topk_prob;
    config.seq_aux = c->seq_aux;
    config.aux_loss_alpha = c->aux_loss_alpha;
    config.n_device_groups = c->n_device_groups;
    config.device_loss_alpha = c->device_loss_alpha;
    return fixture_make(config, SEQUENCES, LENGTH, 1, seed);
}

static double objective(plain *p, const float *dy)
{
    plain_run(p);
    double sum = p->aux_loss + p->device_loss;
    for (int64_t i = 0; i < p->n_tokens * p->config.hidden_size; i++) sum += p->y[i] * dy[i];
    return sum;
}

static double slope(plain *p, const float *dy, double *value)
{
    const double step = 1e-6, at = *value;
    *value = at + step;
    double above = objective(p, dy);
    *value = at - step;
    double below = objective(p, dy);
    *value = at;
    return (above - below) / (2 * step);
}

/* Checks one tensor's gradient, relative to its largest element. The differences are accurate to about
 * 1e-9. */
static void check_tensor(const char *label, const char *name, plain *p, int place, const float *dy,
                         const float *ours)
{
    double worst = 0, magnitude = 0;
    for (int64_t i = 0; i < p->sizes[place]; i++) {
        double expected = slope(p, dy, &p->tensors[place][i]);
        if (!isfinite(ours[i])) fail_msg("%s: %s: a gradient is %g", label, name, (double)ours[i]);
        worst = fmax(worst, fabs(ours[i] - expected));
        magnitude = fmax(magnitude, fabs(expected));
    }
    if (worst > 2e-5 * magnitude + 1e-8)
        fail_msg("%s: %s: off by %g, the largest is %g", label, name, worst, magnitude);
}

static void check_gradients(const char *label, fixture *f)
{
    plain p = plain_of(f);
    plain_run(&p);
    if (p.margin < 1e-3) fail_msg("%s: a tie is too near (%g): take another seed", label, p.margin);
    fixture_forward(f);
    if (worst_difference(f->y, p.y, f->n_tokens * HIDDEN) > 1e-6) fail_msg("%s: y", label);
    if (fabs(f->losses.aux_loss - p.aux_loss) > 1e-6 * p.aux_loss ||
        fabs(f->losses.device_loss - p.device_loss) > 1e-6 * p.device_loss)
        fail_msg("%s: losses %.9g and %.9g, where %.9g and %.9g are expected", label,
                 (double)f->losses.aux_loss, (double)f->losses.device_loss, p.aux_loss,
                 p.device_loss);
    fixture_backward(f, false);
    tensor gradients[MAX_TENSORS];
    int n = layer_tensors(&f->config, f->gradients, gradients);
    check_tensor(label, "dx", &p, PLAIN_X, f->dy, f->dx);
    for (int i = 0; i < n; i++)
        check_tensor(label, gradients[i].name, &p, i + 1, f->dy, gradients[i].data);
    plain_free(&p);
}

static void test_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fixture f = make_case(&cases[i], SEED + i);
        check_gradients(cases[i].name, &f);
        fixture_free(&f);
    }
}

/* ---- the gates of V2 and V3 ------------------------------------------------------------------- */

/* A seed for which all decisions are far from a tie, so that the differences do not change any. */
static fixture make_clear(const dsmoe_layer_config *config)
{
    for (uint64_t seed = SEED;; seed++) {
        assert_true(seed < SEED + 1000);
        fixture f = fixture_make(*config, SEQUENCES, LENGTH, 1, seed);
        plain p = plain_of(&f);
        plain_run(&p);
        double margin = p.margin;
        plain_free(&p);
        if (margin >= 1e-3) return f;
        fixture_free(&f);
    }
}

/* Once with dy, and once with the balance losses alone. */
static void check_gate(const dsmoe_layer_config *config)
{
    char label[128];
    snprintf(label, sizeof label, "%s, %s, %d of %d groups, top-%d, norm_topk_prob %d",
             config->scoring_func, config->topk_method, (int)config->topk_group,
             (int)config->n_group, (int)config->num_experts_per_tok, config->norm_topk_prob);
    fixture f = make_clear(config);
    for (int balance_alone = 0; balance_alone < 2; balance_alone++) {
        if (balance_alone) memset(f.dy, 0, (size_t)(f.n_tokens * HIDDEN) * sizeof *f.dy);
        check_gradients(label, &f);
    }
    if (f.gradients->e_score_correction_bias) /* no gradient is written, not even 0 */
        for (int64_t i = 0; i < config->n_routed_experts; i++)
            assert_true(is_guard(f.gradients->e_score_correction_bias[i]));
    fixture_free(&f);
}

static void test_gates(void **state)
{
    (void)state;
    static const char *const scoring_funcs[] = {"softmax", "sigmoid"};
    static const char *const topk_methods[] = {"greedy", "group_limited_greedy", "noaux_tc"};
    for (int scoring = 0; scoring < 2; scoring++)
        for (int method = 0; method < 3; method++)
            for (int variant = 0; variant < 16; variant++) {
                dsmoe_layer_config c = small_config(HIDDEN, WIDTH, 8, variant & 1 ? 3 : 1, 1);
                c.scoring_func = scoring_funcs[scoring];
                c.topk_method = topk_methods[method];
                c.norm_topk_prob = variant & 2;
                c.n_group = variant & 4 ? 4 : 1;
                c.topk_group = variant & 4 ? 2 : 1;
                c.routed_scaling_factor = variant == 0 ? 0.0f : 2.5f;
                c.seq_aux = variant & 8;
                c.aux_loss_alpha = 0.1f;
                c.n_device_groups = variant & 8 ? 0 : 2;
                c.device_loss_alpha = 0.05f;
                check_gate(&c);
            }
}

static void zero(float *values, int64_t n) { memset(values, 0, (size_t)n * sizeof *values); }

/* With dy = 0 the router learns from the balance losses alone, and the experts learn nothing. */
static void test_balance_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        fixture f = make_case(&cases[i], SEED + i);
        zero(f.dy, f.n_tokens * HIDDEN);
        check_gradients(cases[i].name, &f);
        tensor gradients[MAX_TENSORS];
        int n = layer_tensors(&f.config, f.gradients, gradients);
        for (int t = 1; t < n; t++)
            for (int64_t j = 0; j < gradients[t].n; j++) assert_true(gradients[t].data[j] == 0);
        fixture_free(&f);
    }
}

/* The gradients of one pass with dy multiplied by `scale`. */
static fixture scaled_run(const gradient_case *c, float scale)
{
    fixture f = make_case(c, SEED);
    for (int64_t i = 0; i < f.n_tokens * HIDDEN; i++) f.dy[i] *= scale;
    fixture_forward(&f);
    fixture_backward(&f, false);
    return f;
}

/* Whatever factor a trainer puts on dy, the balance losses keep weight 1. */
static void test_balance_is_not_scaled(void **state)
{
    (void)state;
    const float scale = 64.0f;
    for (size_t c = 1; c < COUNT(cases); c++) {
        fixture none = scaled_run(&cases[c], 0.0f), once = scaled_run(&cases[c], 1.0f);
        fixture scaled = scaled_run(&cases[c], scale);
        double worst = 0, magnitude = 0;
        for (int64_t i = 0; i < cases[c].n_routed * HIDDEN; i++) {
            double balance = none.gradients->gate[i];
            double expected = balance + scale * (once.gradients->gate[i] - balance);
            worst = fmax(worst, fabs(scaled.gradients->gate[i] - expected));
            magnitude = fmax(magnitude, fabs(expected));
        }
        if (worst > 1e-5 * magnitude) fail_msg("%s: off by %g", cases[c].name, worst / magnitude);
        fixture_free(&none);
        fixture_free(&once);
        fixture_free(&scaled);
    }
}

/* The device loss for any number of groups and factor 1, from the routing alone. */
static void test_device_loss(void **state)
{
    (void)state;
    const gradient_case c = {"", 6, 2, 1, 0, false, false, 0.1f, 0.0f};
    fixture f = make_case(&c, SEED);
    fixture_forward(&f);
    dsmoe_routing routing = dsmoe_layer_saved_routing(f.layer, f.saved);
    plain p = plain_of(&f);
    for (int64_t groups = 1; groups <= 6; groups++) {
        double loss;
        dsmoe_error error = {0};
        dsmoe_status status =
            dsmoe_device_loss(&f.config, routing, f.n_tokens, groups, &loss, &error);
        if (6 % groups != 0) {
            assert_int_equal(status, DSMOE_ERROR_ARGUMENT);
            assert_non_null(strstr(error.message, "device groups"));
            continue;
        }
        assert_int_equal(status, DSMOE_OK);
        p.config.n_device_groups = groups;
        p.config.device_loss_alpha = 1.0f;
        plain_run(&p);
        assert_true(fabs(loss - p.device_loss) <= 1e-6 * p.device_loss);
    }
    double loss;
    assert_int_equal(dsmoe_device_loss(&f.config, routing, 0, 2, &loss, NULL),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_device_loss(&f.config, routing, 8, 0, &loss, NULL),
                     DSMOE_ERROR_ARGUMENT);
    plain_free(&p);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),   cmocka_unit_test(test_gates),
        cmocka_unit_test(test_balance_alone), cmocka_unit_test(test_balance_is_not_scaled),
        cmocka_unit_test(test_device_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_logprobs.c - log probabilities against the plain formula in long double, the order of the most
 * likely tokens against sorting, and refused arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "dsmoe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- help ----------------------------------------------------------------------------------- */

static dsmoe_logprobs compute(const float *logits, int64_t n, int32_t token, int n_top)
{
    dsmoe_logprobs result;
    dsmoe_error error = {0};
    if (dsmoe_logprobs_compute(logits, n, token, n_top, &result, &error))
        fail_msg("%s", error.message);
    return result;
}

/* log p = logit - largest - log Σ e^(logit - largest). The two terms to subtract are kept apart, as they
 * may differ too much in size to be added. */
typedef struct normaliser {
    long double largest, log_sum;
} normaliser;

static normaliser normalise(const float *logits, int64_t n)
{
    normaliser z = {-INFINITY, 0};
    long double sum = 0;
    for (int64_t i = 0; i < n; i++) z.largest = logits[i] > z.largest ? logits[i] : z.largest;
    for (int64_t i = 0; i < n; i++) sum += expl(logits[i] - z.largest);
    z.log_sum = logl(sum);
    return z;
}

static double expected(normaliser z, float logit)
{
    return (double)(logit - z.largest - z.log_sum);
}

static void assert_near(double value, double right)
{
    if (!(value <= 0) || !(fabs(value - right) <= 1e-12 * (1 + fabs(right))))
        fail_msg("%.17g is not %.17g", value, right);
}

typedef struct ranked {
    float logit;
    int32_t id;
} ranked;

static int compare(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Checks every number for one row and token, with several n_top. */
static void check_row(const float *logits, int64_t n, int32_t token)
{
    normaliser z = normalise(logits, n);
    ranked *order = malloc((size_t)n * sizeof *order);
    assert_non_null(order);
    int n_possible = 0;
    for (int64_t i = 0; i < n; i++) {
        order[i] = (ranked){logits[i], (int32_t)i};
        n_possible += logits[i] > -INFINITY;
    }
    qsort(order, (size_t)n, sizeof *order, compare);
    static const int tops[] = {0, 1, 2, 5, 19, DSMOE_LOGPROBS_MAX};
    for (size_t t = 0; t < COUNT(tops); t++) {
        dsmoe_logprobs l = compute(logits, n, token, tops[t]);
        assert_int_equal(l.n_top, tops[t] < n_possible ? tops[t] : n_possible);
        for (int i = 0; i < l.n_top; i++) {
            assert_int_equal(l.top[i].id, order[i].id);
            assert_near(l.top[i].logprob, expected(z, order[i].logit));
            if (l.top[i].id == token) assert_true(l.top[i].logprob == l.token.logprob);
        }
        assert_int_equal(l.token.id, token);
        if (logits[token] > -INFINITY)
            assert_near(l.token.logprob, expected(z, logits[token]));
        else
            assert_true(l.token.logprob == -INFINITY);
    }
    free(order);
}

/* ---- the numbers ---------------------------------------------------------------------------- */

static void test_small(void **state)
{
    (void)state;
    /* Probabilities 1/2, 1/4, 1/8 and two of 1/16. */
    static const float logits[] = {(float)-1.3862943611198906, (float)-2.772588722239781,
                                   (float)-0.6931471805599453, (float)-2.0794415416798357,
                                   (float)-2.772588722239781};
    static const int32_t order[] = {2, 0, 3, 1, 4};
    static const double p[] = {0.5, 0.25, 0.125, 0.0625, 0.0625};
    dsmoe_logprobs l = compute(logits, 5, 3, DSMOE_LOGPROBS_MAX);
    assert_int_equal(l.n_top, 5); /* no more tokens than there are */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(l.top[i].id, order[i]);
        assert_true(fabs(exp(l.top[i].logprob) - p[i]) < 1e-7); /* the logits are floats */
    }
    assert_true(fabs(l.token.logprob - log(0.125)) < 1e-6);
    for (int32_t token = 0; token < 5; token++) check_row(logits, 5, token);
}

static void test_random_rows(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 19, 20, 21, 100, 1000};
    static float logits[1000];
    for (size_t s = 0; s < COUNT(sizes); s++) {
        for (uint64_t round = 0; round < 30; round++) {
            rng_normal(logits, sizes[s], 7, round, 0, round % 3 == 0 ? 30.0f : 3.0f);
            if (round % 3 == 1) /* many equal logits */
                for (int64_t i = 0; i < sizes[s]; i++) logits[i] = roundf(logits[i]);
            int32_t token = (int32_t)(rng_bits(8, 0, round) % (uint64_t)sizes[s]);
            check_row(logits, sizes[s], token);
        }
    }
}

/* The size of a real vocabulary. Falling and rising rows are the extreme cases for the ranking. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { LARGE = 102400 };
    float *logits = malloc(LARGE * sizeof *logits);
    assert_non_null(logits);
    rng_normal(logits, LARGE, 1, 2, 0, 3.0f);
    check_row(logits, LARGE, 77);
    for (int i = 0; i < LARGE; i++) logits[i] = (float)i * 1e-4f;
    check_row(logits, LARGE, 0);
    for (int i = 0; i < LARGE; i++) logits[i] = (float)-i * 1e-4f;
    check_row(logits, LARGE, LARGE - 1);
    for (int i = 0; i < LARGE; i++) logits[i] = 5;
    check_row(logits, LARGE, 100);
    free(logits);
}

/* No overflow, and no loss of the difference between p and 1. */
static void test_extremes(void **state)
{
    (void)state;
    static const float rows[][4] = {{FLT_MAX, FLT_MAX, -FLT_MAX, 0},
                                    {-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX},
                                    {1e30f, 1, 2, -INFINITY},
                                    {-INFINITY, 3, -INFINITY, -INFINITY},
                                    {-INFINITY, -1000, -1001, -INFINITY},
                                    {0, -30, -30, -30}};
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int32_t token = 0; token < 4; token++) check_row(rows[i], 4, token);
    dsmoe_logprobs l = compute(rows[3], 4, 1, 3);
    assert_int_equal(l.n_top, 1); /* impossible tokens are left out */
    assert_true(l.token.logprob == 0 && !signbit(l.token.logprob));
    l = compute(rows[0], 4, 2, 0);
    assert_true(l.token.logprob < -1e38 && l.token.logprob > -INFINITY);
    l = compute(rows[5], 4, 0, 0);
    assert_near(l.token.logprob, -log1p(3 * exp(-30)));
}

/* The sampler's settings do not affect log probabilities: they are computed from the model's own logits. */
static void test_of_a_picked_token(void **state)
{
    (void)state;
    static const float logits[] = {1, 2, 3, 4};
    static const dsmoe_logit_bias ban = {3, -100};
    dsmoe_sampler_options options = dsmoe_sampler_options_default();
    options.temperature = 0;
    options.logit_bias = &ban;
    options.n_logit_bias = 1;
    dsmoe_sampler *sampler;
    int32_t token;
    assert_int_equal(dsmoe_sampler_create(&options, 4, &sampler, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_sampler_pick(sampler, logits, &token, NULL), DSMOE_OK);
    dsmoe_sampler_free(sampler);
    assert_int_equal(token, 2);
    dsmoe_logprobs l = compute(logits, 4, token, 1);
    assert_near(l.token.logprob, 3 - log(exp(1) + exp(2) + exp(3) + exp(4)));
    assert_int_equal(l.top[0].id, 3);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void test_nonfinite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY};
    for (size_t b = 0; b < COUNT(bad); b++) {
        for (int place = 0; place < 30; place++) {
            for (int n_top = 0; n_top <= DSMOE_LOGPROBS_MAX; n_top += 4) {
                float logits[30];
                for (int i = 0; i < 30; i++) logits[i] = (float)-i;
                logits[place] = bad[b];
                dsmoe_logprobs l;
                dsmoe_error error = {0};
                assert_int_equal(dsmoe_logprobs_compute(logits, 30, 3, n_top, &l, &error),
                                 DSMOE_ERROR_NONFINITE);
                char name[32];
                snprintf(name, sizeof name, "token %d is", place);
                assert_non_null(strstr(error.message, name));
            }
        }
    }
    static const float none[] = {-INFINITY, -INFINITY};
    dsmoe_logprobs l;
    assert_int_equal(dsmoe_logprobs_compute(none, 2, 0, 2, &l, NULL), DSMOE_ERROR_NONFINITE);
}

static void test_arguments(void **state)
{
    (void)state;
    static const float logits[] = {1, 2};
    dsmoe_logprobs l;
    static const struct {
        int64_t vocab_size;
        int32_t token;
        int n_top;
        const char *message;
    } wrong[] = {{0, 0, 0, "vocab_size"},
                 {-1, 0, 0, "vocab_size"},
                 {INT64_MAX, 0, 0, "vocab_size"},
                 {2, -1, 0, "token -1"},
                 {2, 2, 0, "token 2"},
                 {2, 0, -1, "n_top"},
                 {2, 0, DSMOE_LOGPROBS_MAX + 1, "n_top"}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dsmoe_error error = {0};
        assert_int_equal(dsmoe_logprobs_compute(logits, wrong[i].vocab_size, wrong[i].token,
                                                wrong[i].n_top, &l, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, wrong[i].message));
    }
    assert_int_equal(dsmoe_logprobs_compute(NULL, 2, 0, 0, &l, NULL), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_logprobs_compute(logits, 2, 0, 0, NULL, NULL), DSMOE_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_of_a_picked_token),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_sampler.c - which tokens can be chosen, how often they are, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "dsmoe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { VOCAB = 8 };

/* ---- help ----------------------------------------------------------------------------------- */

/* Options that leave the model's own distribution as it is. */
static dsmoe_sampler_options plain(void)
{
    return (dsmoe_sampler_options){
        .temperature = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64};
}

static dsmoe_sampler *create(const dsmoe_sampler_options *options, int64_t vocab_size)
{
    dsmoe_sampler *sampler;
    dsmoe_error error = {0};
    if (dsmoe_sampler_create(options, vocab_size, &sampler, &error)) fail_msg("%s", error.message);
    return sampler;
}

static int32_t pick(dsmoe_sampler *sampler, const float *logits)
{
    int32_t token;
    dsmoe_error error = {0};
    if (dsmoe_sampler_pick(sampler, logits, &token, &error)) fail_msg("%s", error.message);
    return token;
}

/* How often each token comes in n draws. */
static void draw(const dsmoe_sampler_options *options, const float *logits, int n,
                 int counts[VOCAB])
{
    memset(counts, 0, VOCAB * sizeof *counts);
    dsmoe_sampler *sampler = create(options, VOCAB);
    for (int i = 0; i < n; i++) {
        int32_t token = pick(sampler, logits);
        assert_in_range(token, 0, VOCAB - 1);
        counts[token]++;
    }
    dsmoe_sampler_free(sampler);
}

/* Chi-squared of counts against probabilities that sum to 1; tokens of probability 0 must be absent.
 * Seven degrees of freedom: above 24.3 in one of a thousand cases, and the seed is fixed. */
static void assert_distribution(const int counts[VOCAB], const double p[VOCAB], int n)
{
    double chi2 = 0;
    for (int i = 0; i < VOCAB; i++) {
        if (p[i] == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = p[i] * n;
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    if (chi2 > 24.3) fail_msg("chi squared is %g", chi2);
}

/* Tokens that come at all, as bits: each has a chance of at least 1 in 300 in these tests. */
static unsigned chosen(const dsmoe_sampler_options *options, const float *logits)
{
    int counts[VOCAB];
    draw(options, logits, 4000, counts);
    unsigned set = 0;
    for (int i = 0; i < VOCAB; i++) set |= (unsigned)(counts[i] > 0) << i;
    return set;
}

/* Probabilities 0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02 and none, in no order. */
static const double probabilities[VOCAB] = {0.1, 0.4, 0.02, 0.25, 0, 0.05, 0.15, 0.03};
static float example[VOCAB];

static int make_example(void **state)
{
    (void)state;
    for (int i = 0; i < VOCAB; i++) example[i] = (float)log(probabilities[i]) + 3;
    return 0;
}

/* ---- the distribution ----------------------------------------------------------------------- */

static void test_distribution(void **state)
{
    (void)state;
    enum { N = 40000 };
    int counts[VOCAB];
    for (uint64_t seed = 0; seed < 3; seed++) {
        dsmoe_sampler_options options = plain();
        options.seed = seed;
        draw(&options, example, N, counts);
        assert_distribution(counts, probabilities, N);
    }
    static const double temperatures[] = {0.5, 0.8, 2};
    for (size_t t = 0; t < COUNT(temperatures); t++) {
        dsmoe_sampler_options options = plain();
        options.temperature = temperatures[t];
        double p[VOCAB], total = 0;
        for (int i = 0; i < VOCAB; i++) total += p[i] = pow(probabilities[i], 1 / temperatures[t]);
        for (int i = 0; i < VOCAB; i++) p[i] /= total;
        draw(&options, example, N, counts);
        assert_distribution(counts, p, N);
    }
}

/* What the limits leave keeps its proportions. */
static void test_renormalised(void **state)
{
    (void)state;
    enum { N = 40000 };
    int counts[VOCAB];
    dsmoe_sampler_options options = plain();
    options.top_k = 3;
    draw(&options, example, N, counts);
    static const double p[VOCAB] = {[1] = 0.5, [3] = 0.3125, [6] = 0.1875};
    assert_distribution(counts, p, N);
}

static void test_temperature_extremes(void **state)
{
    (void)state;
    dsmoe_sampler_options options = plain();
    options.temperature = 1e-300; /* no different from 0 */
    assert_int_equal(chosen(&options, example), 1u << 1);
    options.temperature = 1e30; /* all alike */
    int counts[VOCAB];
    draw(&options, example, 40000, counts);
    double p[VOCAB];
    for (int i = 0; i < VOCAB; i++) p[i] = probabilities[i] > 0 ? 1.0 / 7 : 0;
    assert_distribution(counts, p, 40000);
}

/* ---- what can be chosen --------------------------------------------------------------------- */

static void test_sets(void **state)
{
    (void)state;
    static const struct {
        int64_t top_k;
        double top_p, min_p;
        unsigned set;
    } cases[] = {
        {0, 1, 0, 0xef}, /* by probability: 1 3 6 0 5 7 2 */
        {1, 1, 0, 0x02},    {3, 1, 0, 0x4a},         {4, 1, 0, 0x4b},    {7, 1, 0, 0xef},
        {8, 1, 0, 0xef},    {INT64_MAX, 1, 0, 0xef}, {0, 0, 0, 0x02},    {0, 0.3, 0, 0x02},
        {0, 0.41, 0, 0x0a}, {0, 0.64, 0, 0x0a},      {0, 0.66, 0, 0x4a}, {0, 0.94, 0, 0x6b},
        {0, 0.99, 0, 0xef}, {0, 1, 0.2, 0x4b},       {0, 1, 0.3, 0x4a},  {0, 1, 1, 0x02},
        {0, 1, 0.06, 0xeb}, {0, 0.66, 0.5, 0x0a},    {2, 0.62, 0, 0x0a}, /* 0.4 of 0.65 are 0.615 */
        {2, 0.61, 0, 0x02}, {5, 0.99, 0.3, 0x4a},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_sampler_options options = plain();
        options.top_k = cases[i].top_k;
        options.top_p = cases[i].top_p;
        options.min_p = cases[i].min_p;
        /* Limits look at temperature 1, whatever the temperature is. */
        for (options.temperature = 1; options.temperature < 2; options.temperature += 0.7) {
            unsigned set = chosen(&options, example);
            if (set != cases[i].set) fail_msg("case %zu: 0x%x, not 0x%x", i, set, cases[i].set);
        }
    }
}

/* Of equals, the lower id comes first. */
static void test_ties(void **state)
{
    (void)state;
    static const float alike[VOCAB] = {1, 2, 2, 1, 2, 1, 2, 1};
    dsmoe_sampler_options options = plain();
    options.top_k = 2;
    assert_int_equal(chosen(&options, alike), 0x06);
    options.top_k = 5;
    assert_int_equal(chosen(&options, alike), 0x57);
    options.top_k = 0;
    options.top_p = 0.01;
    assert_int_equal(chosen(&options, alike), 0x02);
    options.top_p = 1;
    options.min_p = 1;
    assert_int_equal(chosen(&options, alike), 0x56);
    options.temperature = 0;
    assert_int_equal(chosen(&options, alike), 0x02);
}

static int compare_scores(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return (a < b) - (a > b);
}

/* The size of a real vocabulary: top-k against sorting. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { LARGE = 102400 };
    float *logits = malloc(2 * LARGE * sizeof *logits), *sorted = logits + LARGE;
    assert_non_null(logits);
    rng_normal(logits, LARGE, 1, 2, 0, 3.0f);
    memcpy(sorted, logits, LARGE * sizeof *logits);
    qsort(sorted, LARGE, sizeof *sorted, compare_scores);
    static const int64_t ks[] = {1, 2, 40, 1000};
    for (size_t i = 0; i < COUNT(ks); i++) {
        dsmoe_sampler_options options = plain();
        options.top_k = ks[i];
        options.temperature = 100; /* all of them come often */
        dsmoe_sampler *sampler = create(&options, LARGE);
        for (int n = 0; n < 50; n++)
            assert_true(logits[pick(sampler, logits)] >= sorted[ks[i] - 1]);
        dsmoe_sampler_free(sampler);
    }
    free(logits);
}

/* ---- the same again ------------------------------------------------------------------------- */

static void test_deterministic(void **state)
{
    (void)state;
    enum { N = 64 };
    int32_t tokens[3][N];
    for (int run = 0; run < 3; run++) {
        dsmoe_sampler_options options = dsmoe_sampler_options_default();
        options.seed = run < 2 ? 11 : 12;
        dsmoe_sampler *sampler = create(&options, VOCAB);
        for (int i = 0; i < N; i++) {
            tokens[run][i] = pick(sampler, example);
            dsmoe_sampler_accept(sampler, tokens[run][i]);
        }
        dsmoe_sampler_free(sampler);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_not_equal(tokens[0], tokens[2], sizeof tokens[0]);
}

/* ---- the repeat penalty --------------------------------------------------------------------- */

static void test_penalty(void **state)
{
    (void)state;
    static const float logits[VOCAB] = {-4, 3, 2.5f, 2, -1, -2, -3, -5};
    dsmoe_sampler_options options = plain();
    options.temperature = 0;
    options.repeat_penalty = 1.3;
    options.repeat_last_n = 2;
    dsmoe_sampler *sampler = create(&options, VOCAB);
    assert_int_equal(pick(sampler, logits), 1);
    dsmoe_sampler_accept(sampler, 1);
    assert_int_equal(pick(sampler, logits), 2); /* 3 / 1.3 = 2.3 */
    dsmoe_sampler_accept(sampler, 1);           /* twice is not worse than once */
    assert_int_equal(pick(sampler, logits), 2);
    dsmoe_sampler_accept(sampler, 2);
    assert_int_equal(pick(sampler, logits), 1); /* 2.3, against 2.5 / 1.3 = 1.9 and 2 */
    dsmoe_sampler_accept(sampler, 3);
    assert_int_equal(pick(sampler, logits), 1); /* forgotten: only the last two count */
    /* What is not a token of the vocabulary is no token of the text. */
    dsmoe_sampler_accept(sampler, -1);
    dsmoe_sampler_accept(sampler, VOCAB);
    dsmoe_sampler_accept(sampler, 1);
    assert_int_equal(pick(sampler, logits), 2);
    dsmoe_sampler_free(sampler);

    /* Below 0 a penalty multiplies; -inf stays. */
    static const float negative[VOCAB] = {-1, -1.2f, -1.4f, -INFINITY, -9, -9, -9, -9};
    sampler = create(&options, VOCAB);
    dsmoe_sampler_accept(sampler, 0);
    dsmoe_sampler_accept(sampler, 3);
    assert_int_equal(pick(sampler, negative), 1); /* -1.3 */
    dsmoe_sampler_free(sampler);

    options.repeat_last_n = 0;
    sampler = create(&options, VOCAB);
    dsmoe_sampler_accept(sampler, 1);
    assert_int_equal(pick(sampler, logits), 1);
    dsmoe_sampler_free(sampler);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void test_nonfinite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -NAN};
    for (size_t i = 0; i < COUNT(bad); i++) {
        for (int place = 0; place < VOCAB; place++) {
            for (int greedy = 0; greedy < 2; greedy++) {
                float logits[VOCAB];
                memcpy(logits, example, sizeof logits);
                logits[place] = bad[i];
                dsmoe_sampler_options options = dsmoe_sampler_options_default();
                if (greedy) options.temperature = 0;
                dsmoe_sampler *sampler = create(&options, VOCAB);
                int32_t token = -7;
                dsmoe_error error = {0};
                assert_int_equal(dsmoe_sampler_pick(sampler, logits, &token, &error),
                                 DSMOE_ERROR_NONFINITE);
                assert_int_equal(token, -7);
                char name[32];
                snprintf(name, sizeof name, "token %d is", place);
                assert_non_null(strstr(error.message, name));
                dsmoe_sampler_free(sampler);
            }
        }
    }
    float none[VOCAB];
    for (int i = 0; i < VOCAB; i++) none[i] = -INFINITY;
    dsmoe_sampler_options options = dsmoe_sampler_options_default();
    dsmoe_sampler *sampler = create(&options, VOCAB);
    int32_t token;
    assert_int_equal(dsmoe_sampler_pick(sampler, none, &token, NULL), DSMOE_ERROR_NONFINITE);
    none[5] = -3e38f; /* the only one */
    for (int i = 0; i < 20; i++) assert_int_equal(pick(sampler, none), 5);
    none[2] = 3e38f;
    for (int i = 0; i < 20; i++) assert_int_equal(pick(sampler, none), 2);
    dsmoe_sampler_free(sampler);
}

static void assert_refused(const dsmoe_sampler_options *options, int64_t vocab_size,
                           const char *name)
{
    dsmoe_sampler *sampler = (dsmoe_sampler *)options; /* anything but NULL */
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_sampler_create(options, vocab_size, &sampler, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_null(sampler);
    if (strncmp(error.message, name, strlen(name)))
        fail_msg("'%s' does not name %s", error.message, name);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        double values[4];
    } numbers[] = {
        {"temperature", offsetof(dsmoe_sampler_options, temperature), {-1, NAN, INFINITY, -1e-9}},
        {"top_p", offsetof(dsmoe_sampler_options, top_p), {-0.1, NAN, INFINITY, 1.001}},
        {"min_p", offsetof(dsmoe_sampler_options, min_p), {-0.1, NAN, INFINITY, 1.001}},
        {"repeat_penalty",
         offsetof(dsmoe_sampler_options, repeat_penalty),
         {0, NAN, INFINITY, -1}}};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        for (size_t j = 0; j < COUNT(numbers[i].values); j++) {
            dsmoe_sampler_options options = plain();
            memcpy((char *)&options + numbers[i].offset, &numbers[i].values[j], sizeof(double));
            assert_refused(&options, VOCAB, numbers[i].name);
        }
    }
    dsmoe_sampler_options options = plain();
    options.top_k = -1;
    assert_refused(&options, VOCAB, "top_k");
    options = plain();
    options.repeat_last_n = -1;
    assert_refused(&options, VOCAB, "repeat_last_n");
    options.repeat_last_n = INT64_MAX;
    assert_refused(&options, VOCAB, "repeat_last_n");
    options = plain();
    assert_refused(&options, 0, "vocab_size");
    assert_refused(&options, INT64_MAX, "vocab_size");
    dsmoe_sampler *sampler;
    assert_int_equal(dsmoe_sampler_create(NULL, VOCAB, &sampler, NULL), DSMOE_ERROR_ARGUMENT);
    dsmoe_sampler_free(NULL);

    options = dsmoe_sampler_options_default();
    assert_true(options.temperature == 0.8 && options.top_p == 0.95 && options.min_p == 0.05 &&
                options.repeat_penalty == 1 && options.top_k == 40 && options.repeat_last_n == 64 &&
                options.seed == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_renormalised),
        cmocka_unit_test(test_temperature_extremes),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, make_example, NULL);
}

/* test_sampler.c - which tokens can be chosen, how often they are, and what is refused. */
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

enum { VOCAB = 8 };

/* ---- help ----------------------------------------------------------------------------------- */

/* Options that do not change the model's distribution. */
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

/* Counts how often each token is chosen in n draws. */
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

/* Chi-squared of counts against probabilities that sum to 1. Tokens of probability 0 must not occur. With
 * seven degrees of freedom it exceeds 24.3 once in a thousand cases, and the seed is fixed. */
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

/* The set of tokens that are chosen at all, as bits. In these tests each has a chance of at least 1 in
 * 300. */
static unsigned chosen(const dsmoe_sampler_options *options, const float *logits)
{
    int counts[VOCAB];
    draw(options, logits, 4000, counts);
    unsigned set = 0;
    for (int i = 0; i < VOCAB; i++) set |= (unsigned)(counts[i] > 0) << i;
    return set;
}

/* Probabilities 0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02 and 0, unsorted. */
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

/* The tokens that the limits leave keep their proportions. */
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
    options.temperature = 1e-300; /* the same as 0 */
    assert_int_equal(chosen(&options, example), 1u << 1);
    options.temperature = 1e30; /* all tokens are equally likely */
    int counts[VOCAB];
    draw(&options, example, 40000, counts);
    double p[VOCAB];
    for (int i = 0; i < VOCAB; i++) p[i] = probabilities[i] > 0 ? 1.0 / 7 : 0;
    assert_distribution(counts, p, 40000);
}

/* ---- which tokens can be chosen ------------------------------------------------------------- */

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
        /* The limits always use temperature 1. */
        for (options.temperature = 1; options.temperature < 2; options.temperature += 0.7) {
            unsigned set = chosen(&options, example);
            if (set != cases[i].set) fail_msg("case %zu: 0x%x, not 0x%x", i, set, cases[i].set);
        }
    }
}

/* For equal tokens the lower id comes first. */
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
        options.temperature = 100; /* so that all of them are chosen often */
        dsmoe_sampler *sampler = create(&options, LARGE);
        for (int n = 0; n < 50; n++)
            assert_true(logits[pick(sampler, logits)] >= sorted[ks[i] - 1]);
        dsmoe_sampler_free(sampler);
    }
    free(logits);
}

/* ---- reproducible choices ------------------------------------------------------------------- */

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
    dsmoe_sampler_accept(sampler, 1);           /* twice counts like once */
    assert_int_equal(pick(sampler, logits), 2);
    dsmoe_sampler_accept(sampler, 2);
    assert_int_equal(pick(sampler, logits), 1); /* 2.3, against 2.5 / 1.3 = 1.9, and 2 */
    dsmoe_sampler_accept(sampler, 3);
    assert_int_equal(pick(sampler, logits), 1); /* forgotten: only the last two count */
    /* Ids outside the vocabulary are ignored. */
    dsmoe_sampler_accept(sampler, -1);
    dsmoe_sampler_accept(sampler, VOCAB);
    dsmoe_sampler_accept(sampler, 1);
    assert_int_equal(pick(sampler, logits), 2);
    dsmoe_sampler_free(sampler);

    /* Negative logits are multiplied by the penalty; -inf stays. */
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

/* ---- presence and frequency penalties ------------------------------------------------------- */

/* What determines one token's score. */
typedef struct scored {
    double logit, repeat_penalty, presence_penalty, frequency_penalty, bias;
    int n_prompt, n_text; /* how often it is in the prompt and in the text */
} scored;

static double expected_score(const scored *c)
{
    double score = c->logit;
    if (c->n_prompt + c->n_text > 0)
        score = score > 0 ? score / c->repeat_penalty : score * c->repeat_penalty;
    return score - c->presence_penalty * (c->n_text > 0) - c->frequency_penalty * c->n_text +
           c->bias;
}

/* Token 3 competes with token 5, which has only its logit. */
static int32_t compete(const scored *c, double rival)
{
    const dsmoe_logit_bias bias = {3, c->bias};
    dsmoe_sampler_options options = plain();
    options.temperature = 0;
    options.repeat_penalty = c->repeat_penalty;
    options.presence_penalty = c->presence_penalty;
    options.frequency_penalty = c->frequency_penalty;
    options.logit_bias = &bias;
    options.n_logit_bias = 1;
    dsmoe_sampler *sampler = create(&options, VOCAB);
    static const int32_t token = 3;
    for (int i = 0; i < c->n_prompt; i++) dsmoe_sampler_accept_prompt(sampler, &token, 1);
    for (int i = 0; i < c->n_text; i++) dsmoe_sampler_accept(sampler, token);
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
    logits[3] = (float)c->logit;
    logits[5] = (float)rival;
    int32_t best = pick(sampler, logits);
    dsmoe_sampler_free(sampler);
    return best;
}

/* A rival with a slightly lower or higher logit reveals the score. */
static void test_scores(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 2000; round++) {
        float r[5];
        rng_uniform(r, COUNT(r), 5, round, 0, -1, 1);
        uint64_t bits = rng_bits(6, 0, round);
        const scored c = {.logit = r[0] * 20,
                          .repeat_penalty = bits & 1 ? exp(r[1]) : 1,
                          .presence_penalty = bits & 2 ? 2 * r[2] : 0,
                          .frequency_penalty = bits & 4 ? 2 * r[3] : 0,
                          .bias = bits & 8 ? 90 * r[4] : 0,
                          .n_prompt = (int)((bits >> 8) % 3),
                          .n_text = (int)((bits >> 16) % 6)};
        double score = expected_score(&c), slack = 2e-6 * (fabs(score) + fabs(c.bias) + 60);
        if (compete(&c, score - slack) != 3 || compete(&c, score + slack) != 5)
            fail_msg("round %d: the score is not %.9g", (int)round, score);
    }
}

/* All steps together, against probabilities in double precision. */
static void test_penalised_distribution(void **state)
{
    (void)state;
    enum { N = 40000 };
    static const dsmoe_logit_bias bias[] = {{6, 0.5}, {2, 1.5}, {6, -1.2}, {1, -200}};
    static const double added[VOCAB] = {[1] = -INFINITY, [2] = 1.5, [6] = -0.7};
    static const int32_t text[] = {3, 3, 0, 3, 7};
    static const int counts[VOCAB] = {[0] = 1, [3] = 3, [7] = 1};
    dsmoe_sampler_options options = plain();
    options.temperature = 1.4;
    options.presence_penalty = 0.4;
    options.frequency_penalty = 0.3;
    options.logit_bias = bias;
    options.n_logit_bias = COUNT(bias);
    double p[VOCAB], total = 0;
    for (int i = 0; i < VOCAB; i++) {
        double score = example[i] - 0.4 * (counts[i] > 0) - 0.3 * counts[i] + added[i];
        total += p[i] = exp(score / 1.4);
    }
    for (int i = 0; i < VOCAB; i++) p[i] /= total;
    dsmoe_sampler *sampler = create(&options, VOCAB);
    for (size_t i = 0; i < COUNT(text); i++) dsmoe_sampler_accept(sampler, text[i]);
    int drawn[VOCAB] = {0};
    for (int i = 0; i < N; i++) drawn[pick(sampler, example)]++;
    dsmoe_sampler_free(sampler);
    assert_distribution(drawn, p, N);
}

/* Counts cover the whole text, but not the prompt. A reset forgets them and the recent tokens. */
static void test_text_counts(void **state)
{
    (void)state;
    static const float logits[VOCAB] = {1, 3, 2, 0, 0, 0, 0, 0};
    static const int32_t prompt[] = {1, 1, -1, VOCAB, 1};
    dsmoe_sampler_options options = plain();
    options.temperature = 0;
    options.repeat_last_n = 1;
    options.frequency_penalty = 0.6;
    dsmoe_sampler *sampler = create(&options, VOCAB);
    dsmoe_sampler_accept_prompt(sampler, prompt, COUNT(prompt));
    assert_int_equal(pick(sampler, logits), 1);
    dsmoe_sampler_accept(sampler, 1);
    assert_int_equal(pick(sampler, logits), 1); /* 2.4 */
    dsmoe_sampler_accept(sampler, 1);
    for (int i = 0; i < 3; i++) dsmoe_sampler_accept(sampler, 7);
    dsmoe_sampler_accept(sampler, -1);
    dsmoe_sampler_accept(sampler, VOCAB);
    assert_int_equal(pick(sampler, logits), 2); /* 1.8: all of the text counts */
    dsmoe_sampler_reset(sampler);
    assert_int_equal(pick(sampler, logits), 1);
    dsmoe_sampler_free(sampler);

    options.frequency_penalty = 0;
    options.repeat_penalty = 2;
    sampler = create(&options, VOCAB);
    dsmoe_sampler_accept_prompt(sampler, prompt, COUNT(prompt));
    assert_int_equal(pick(sampler, logits), 2); /* the repeat penalty includes the prompt */
    dsmoe_sampler_reset(sampler);
    assert_int_equal(pick(sampler, logits), 1);
    dsmoe_sampler_free(sampler);

    options.repeat_penalty = 1;
    options.presence_penalty = -1.5; /* favours repetition */
    sampler = create(&options, VOCAB);
    dsmoe_sampler_accept(sampler, 2);
    assert_int_equal(pick(sampler, logits), 2);
    dsmoe_sampler_free(sampler);
}

/* Samplers share nothing. A reset does not repeat the random numbers. */
static void test_independent(void **state)
{
    (void)state;
    enum { N = 64 };
    dsmoe_sampler_options options = plain();
    options.frequency_penalty = 0.2;
    dsmoe_sampler *samplers[3];
    for (int i = 0; i < 3; i++) samplers[i] = create(&options, VOCAB);
    int32_t alone[N], beside[N], again[N];
    for (int i = 0; i < N; i++)
        dsmoe_sampler_accept(samplers[0], alone[i] = pick(samplers[0], example));
    for (int i = 0; i < N; i++) {
        dsmoe_sampler_accept(samplers[1], beside[i] = pick(samplers[1], example));
        dsmoe_sampler_accept(samplers[2], 3);
        pick(samplers[2], example);
    }
    assert_memory_equal(alone, beside, sizeof alone);
    dsmoe_sampler_reset(samplers[0]);
    for (int i = 0; i < N; i++)
        dsmoe_sampler_accept(samplers[0], again[i] = pick(samplers[0], example));
    assert_memory_not_equal(alone, again, sizeof alone);
    for (int i = 0; i < 3; i++) dsmoe_sampler_free(samplers[i]);
}

/* ---- biases --------------------------------------------------------------------------------- */

static unsigned chosen_with(const dsmoe_logit_bias *bias, int64_t n, double temperature)
{
    dsmoe_sampler_options options = plain();
    options.temperature = temperature;
    options.logit_bias = bias;
    options.n_logit_bias = n;
    return chosen(&options, example);
}

static void test_bias(void **state)
{
    (void)state;
    static const double bans[] = {-100, -100.5, -1e300, -INFINITY};
    for (size_t i = 0; i < COUNT(bans); i++) {
        const dsmoe_logit_bias ban[] = {{1, 50}, {1, bans[i]}, {3, bans[i]}};
        assert_int_equal(chosen_with(ban, COUNT(ban), 1), 0xef & ~0x0a);
        assert_int_equal(chosen_with(ban, COUNT(ban), 0), 0x40);
    }
    /* Forces a token in practice, but not one with probability 0. */
    static const dsmoe_logit_bias force = {2, 100}, impossible = {4, 100}, weak = {1, -99.9};
    assert_int_equal(chosen_with(&force, 1, 1), 0x04);
    assert_int_equal(chosen_with(&force, 1, 0), 0x04);
    assert_int_equal(chosen_with(&impossible, 1, 1), 0xef);
    /* Not quite a ban: the token is chosen if there is no other. */
    static const float only[VOCAB] = {-INFINITY, 2,         -INFINITY, -INFINITY,
                                      -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    dsmoe_sampler_options options = plain();
    options.logit_bias = &weak;
    options.n_logit_bias = 1;
    assert_int_equal(chosen(&options, only), 0x02);
}

/* Top-k and the other limits use biased scores. */
static void test_bias_before_limits(void **state)
{
    (void)state;
    static const dsmoe_logit_bias bias[] = {{2, 20}, {1, -INFINITY}};
    dsmoe_sampler_options options = plain();
    options.logit_bias = bias;
    options.n_logit_bias = COUNT(bias);
    options.top_k = 1;
    assert_int_equal(chosen(&options, example), 0x04);
    options.top_k = 0;
    options.min_p = 0.5;
    assert_int_equal(chosen(&options, example), 0x04);
    options.min_p = 0;
    options.top_p = 0.9;
    assert_int_equal(chosen(&options, example), 0x04);
}

static void test_bias_is_copied(void **state)
{
    (void)state;
    dsmoe_logit_bias *bias = malloc(sizeof *bias);
    assert_non_null(bias);
    *bias = (dsmoe_logit_bias){1, -INFINITY};
    dsmoe_sampler_options options = plain();
    options.temperature = 0;
    options.logit_bias = bias;
    options.n_logit_bias = 1;
    dsmoe_sampler *sampler = create(&options, VOCAB);
    bias->bias = 0;
    free(bias);
    assert_int_equal(pick(sampler, example), 3);
    dsmoe_sampler_reset(sampler); /* resets tokens, not options */
    assert_int_equal(pick(sampler, example), 3);
    dsmoe_sampler_free(sampler);
}

/* To keep a text from ending, its end tokens are banned for the whole text, or for one step. */
static void test_ban_of_the_end(void **state)
{
    (void)state;
    enum { END = 1, OTHER_END = 3 };
    static const dsmoe_logit_bias ends[] = {{END, -INFINITY}, {OTHER_END, DSMOE_LOGIT_BIAS_BAN}};
    dsmoe_sampler_options options = plain();
    options.logit_bias = ends;
    options.n_logit_bias = COUNT(ends);
    dsmoe_sampler *sampler = create(&options, VOCAB);
    for (int i = 0; i < 1000; i++) {
        int32_t token = pick(sampler, example);
        assert_true(token != END && token != OTHER_END);
        dsmoe_sampler_accept(sampler, token);
    }
    dsmoe_sampler_free(sampler);

    float row[VOCAB];
    memcpy(row, example, sizeof row);
    row[END] = -INFINITY;
    options = plain();
    options.temperature = 0;
    sampler = create(&options, VOCAB);
    assert_int_equal(pick(sampler, row), 3);
    assert_int_equal(pick(sampler, example), END);
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
    none[5] = -3e38f; /* the only finite one */
    for (int i = 0; i < 20; i++) assert_int_equal(pick(sampler, none), 5);
    none[2] = 3e38f;
    for (int i = 0; i < 20; i++) assert_int_equal(pick(sampler, none), 2);
    dsmoe_sampler_free(sampler);
}

/* If the options ban everything, the error differs from that of a model without any token. */
static void test_everything_banned(void **state)
{
    (void)state;
    dsmoe_logit_bias all[VOCAB];
    for (int i = 0; i < VOCAB; i++) all[i] = (dsmoe_logit_bias){i, -100};
    float none[VOCAB];
    for (int i = 0; i < VOCAB; i++) none[i] = -INFINITY;
    for (int greedy = 0; greedy < 2; greedy++) {
        dsmoe_sampler_options options = dsmoe_sampler_options_default();
        if (greedy) options.temperature = 0;
        options.logit_bias = all;
        options.n_logit_bias = VOCAB;
        dsmoe_sampler *sampler = create(&options, VOCAB);
        int32_t token = -7;
        dsmoe_error error = {0};
        assert_int_equal(dsmoe_sampler_pick(sampler, example, &token, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_int_equal(token, -7);
        assert_non_null(strstr(error.message, "logit_bias"));
        assert_int_equal(dsmoe_sampler_pick(sampler, none, &token, NULL), DSMOE_ERROR_NONFINITE);
        dsmoe_sampler_free(sampler);
        options.n_logit_bias = VOCAB - 1; /* the last one is allowed */
        sampler = create(&options, VOCAB);
        assert_int_equal(pick(sampler, example), VOCAB - 1);
        dsmoe_sampler_free(sampler);
    }
}

/* A ban does not hide NaN or infinity, and the largest logits stay finite. */
static void test_extreme_scores(void **state)
{
    (void)state;
    const dsmoe_logit_bias bias[] = {{2, -INFINITY}, {5, 1e6}};
    dsmoe_sampler_options options = plain();
    options.temperature = 0;
    options.presence_penalty = options.frequency_penalty = -100;
    options.logit_bias = bias;
    options.n_logit_bias = COUNT(bias);
    dsmoe_sampler *sampler = create(&options, VOCAB);
    float logits[VOCAB] = {0};
    int32_t token;
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < COUNT(bad); i++) {
        logits[2] = bad[i];
        assert_int_equal(dsmoe_sampler_pick(sampler, logits, &token, NULL), DSMOE_ERROR_NONFINITE);
    }
    logits[2] = 0;
    logits[5] = FLT_MAX;
    for (int i = 0; i < 1000; i++) dsmoe_sampler_accept(sampler, 5);
    assert_int_equal(pick(sampler, logits), 5);
    logits[5] = -INFINITY;
    assert_int_equal(pick(sampler, logits), 0);
    dsmoe_sampler_free(sampler);
}

static void assert_refused(const dsmoe_sampler_options *options, int64_t vocab_size,
                           const char *name)
{
    dsmoe_sampler *sampler = (dsmoe_sampler *)options; /* any pointer but NULL */
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
        {"repeat_penalty", offsetof(dsmoe_sampler_options, repeat_penalty), {0, NAN, INFINITY, -1}},
        {"presence_penalty",
         offsetof(dsmoe_sampler_options, presence_penalty),
         {-100.1, NAN, INFINITY, 100.1}},
        {"frequency_penalty",
         offsetof(dsmoe_sampler_options, frequency_penalty),
         {-100.1, NAN, -INFINITY, 100.1}}};
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
                options.seed == 0 && options.presence_penalty == 0 &&
                options.frequency_penalty == 0 && options.n_logit_bias == 0);
}

static void test_bias_options(void **state)
{
    (void)state;
    static const dsmoe_logit_bias wrong[] = {{-1, 1},       {VOCAB, 1}, {INT32_MIN, 1}, {0, NAN},
                                             {0, INFINITY}, {0, 1.1e6}, {VOCAB, -100}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const dsmoe_logit_bias bias[] = {{VOCAB - 1, 1}, wrong[i]};
        dsmoe_sampler_options options = plain();
        options.logit_bias = bias;
        options.n_logit_bias = COUNT(bias);
        assert_refused(&options, VOCAB, "logit_bias");
        options.n_logit_bias = 1;
        dsmoe_sampler_free(create(&options, VOCAB));
    }
    static const dsmoe_logit_bias many[DSMOE_LOGIT_BIAS_MAX + 1];
    dsmoe_sampler_options options = plain();
    options.logit_bias = many;
    static const int64_t counts[] = {-1, COUNT(many), INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT(counts); i++) {
        options.n_logit_bias = counts[i];
        assert_refused(&options, VOCAB, "logit_bias");
    }
    options.n_logit_bias = DSMOE_LOGIT_BIAS_MAX;
    dsmoe_sampler_free(create(&options, VOCAB));
    options.logit_bias = NULL;
    assert_refused(&options, VOCAB, "logit_bias");
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
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_penalised_distribution),
        cmocka_unit_test(test_text_counts),
        cmocka_unit_test(test_independent),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_bias_before_limits),
        cmocka_unit_test(test_bias_is_copied),
        cmocka_unit_test(test_ban_of_the_end),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_everything_banned),
        cmocka_unit_test(test_extreme_scores),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_bias_options),
    };
    return cmocka_run_group_tests(tests, make_example, NULL);
}

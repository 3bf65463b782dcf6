/* test_compare.c - comparing two models: a model with itself, and with one of other weights, where the
 * distance is computed a second time from the logits of prompts. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_files.h"
#include "made_model.h"
#include "scratch.h"

enum { VOCAB = 61, N_TOKENS = 150 };

typedef struct fixed {
    made_model made, other_made;
    dsmoe_model *model, *other;
    char other_path[512];
    int32_t tokens[N_TOKENS];
} fixed;

static fixed f;

/* The other model has the same weights with some noise. */
static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_config();
    f.made = made_model_create(&config, "F32", 31);
    f.other_made = made_model_create(&config, "F32", 31);
    for (int i = 0; i < f.other_made.n_tensors; i++) {
        made_tensor *t = &f.other_made.tensors[i];
        for (int64_t j = 0; j < t->n; j++) t->data[j] *= 1.0f + 0.1f * (float)((i + j) % 3 - 1);
    }
    made_model_write(&f.made, directory, false);
    f.model = open_model(directory);
    make_folder("other");
    snprintf(f.other_path, sizeof f.other_path, "%s", in_directory("other"));
    made_model_write(&f.other_made, f.other_path, false);
    f.other = open_model(f.other_path);
    made_tokens(&f.made, f.tokens, N_TOKENS, 5);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(f.model);
    dsmoe_model_free(f.other);
    made_model_free(&f.made);
    made_model_free(&f.other_made);
    made_model_remove(f.other_path);
    remove(f.other_path);
    made_model_remove(directory);
    return remove_directory(state);
}

static dsmoe_comparison compare(const dsmoe_model *model, const dsmoe_model *against, int64_t n,
                                int64_t n_ctx, int n_threads)
{
    dsmoe_comparison c;
    dsmoe_error error = {0};
    memset(&c, 0xff, sizeof c);
    must(dsmoe_model_compare(model, against, f.tokens, n, n_ctx, n_threads, NULL, NULL, &c, &error),
         &error, "comparing");
    return c;
}

static void test_itself(void **state)
{
    (void)state;
    dsmoe_model *copy = open_model(directory);
    dsmoe_comparison c = compare(f.model, copy, N_TOKENS, 40, 2);
    assert_true(c.kl == 0 && c.kl_error == 0 && c.kl_99 == 0 && c.kl_max == 0);
    assert_true(c.same_top == 1);
    assert_true(c.perplexity == c.perplexity_against && c.perplexity > 1);
    assert_int_equal(c.n_tokens, 3 * 39 + 29);
    dsmoe_model_free(copy);
}

/* ---- the distance computed a second way ------------------------------------------------------ */

/* log p of every token after a prompt, in double. */
static int64_t log_probabilities(dsmoe_sequence *sequence, const int32_t *prompt, int64_t n,
                                 double out[VOCAB])
{
    float logits[VOCAB];
    int64_t top = 0;
    double sum = 0;
    rewind_to(sequence, 0);
    prefill(sequence, prompt, n, logits);
    for (int i = 0; i < VOCAB; i++) {
        sum += exp(logits[i]);
        if (logits[i] > logits[top]) top = i;
    }
    for (int i = 0; i < VOCAB; i++) out[i] = logits[i] - log(sum);
    return top;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static dsmoe_comparison naive(const dsmoe_model *model, const dsmoe_model *against,
                              int64_t n_tokens, int64_t n_ctx)
{
    static double kl[N_TOKENS];
    dsmoe_comparison c = {0};
    dsmoe_sequence *a = make_sequence(model, n_ctx, 0, 1), *b = make_sequence(against, n_ctx, 0, 1);
    double loss = 0, loss_against = 0, squares = 0;
    for (int64_t i = 1; i < n_tokens; i++) {
        if (i % n_ctx == 0) continue;
        const int32_t *prompt = f.tokens + i / n_ctx * n_ctx;
        double log_q[VOCAB], log_p[VOCAB], sum = 0;
        int64_t top = log_probabilities(a, prompt, i % n_ctx, log_q);
        c.same_top += top == log_probabilities(b, prompt, i % n_ctx, log_p);
        for (int j = 0; j < VOCAB; j++) sum += exp(log_p[j]) * (log_p[j] - log_q[j]);
        kl[c.n_tokens++] = sum;
        loss -= log_q[f.tokens[i]];
        loss_against -= log_p[f.tokens[i]];
    }
    double n = (double)c.n_tokens;
    for (int64_t i = 0; i < c.n_tokens; i++) c.kl += kl[i] / n;
    for (int64_t i = 0; i < c.n_tokens; i++) squares += (kl[i] - c.kl) * (kl[i] - c.kl);
    qsort(kl, (size_t)c.n_tokens, sizeof *kl, by_size);
    c.kl_error = sqrt(squares / (n - 1)) / sqrt(n);
    c.kl_99 = kl[(int64_t)ceil(0.99 * n - 1e-9) - 1];
    c.kl_max = kl[c.n_tokens - 1];
    c.same_top /= n;
    c.perplexity = exp(loss / n);
    c.perplexity_against = exp(loss_against / n);
    free_sequence(a);
    free_sequence(b);
    return c;
}

static void assert_close(const char *what, double ours, double expected)
{
    if (!(fabs(ours - expected) <= 1e-4 * fabs(expected)))
        fail_msg("%s is %.9g, where %.9g is expected", what, ours, expected);
}

static void assert_same(dsmoe_comparison ours, dsmoe_comparison expected)
{
    assert_close("kl", ours.kl, expected.kl);
    assert_close("kl_error", ours.kl_error, expected.kl_error);
    assert_close("kl_99", ours.kl_99, expected.kl_99);
    assert_close("kl_max", ours.kl_max, expected.kl_max);
    assert_close("same_top", ours.same_top, expected.same_top);
    assert_close("perplexity", ours.perplexity, expected.perplexity);
    assert_close("perplexity_against", ours.perplexity_against, expected.perplexity_against);
    assert_int_equal(ours.n_tokens, expected.n_tokens);
}

static void test_another(void **state)
{
    (void)state;
    static const int64_t pieces[] = {2, 7, 40, 64, N_TOKENS, 1000};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        dsmoe_comparison expected = naive(f.model, f.other, N_TOKENS, pieces[i]);
        assert_true(expected.kl > 1e-4);
        assert_true(expected.n_tokens < 100 || expected.kl_max > expected.kl_99 * 1.0001);
        assert_true(expected.same_top > 0 && expected.same_top < 1);
        assert_same(compare(f.model, f.other, N_TOKENS, pieces[i], 2), expected);
    }
    /* the default is 512; a last piece of one token predicts nothing */
    assert_same(compare(f.model, f.other, 121, 0, 1), naive(f.model, f.other, 121, 512));
    assert_same(compare(f.model, f.other, 121, 40, 1), naive(f.model, f.other, 121, 40));
    assert_same(compare(f.other, f.model, 33, 16, 1), naive(f.other, f.model, 33, 16));
}

static void test_threads(void **state)
{
    (void)state;
    dsmoe_comparison one = compare(f.model, f.other, N_TOKENS, 70, 1);
    for (int n = 2; n <= 5; n++) {
        dsmoe_comparison more = compare(f.model, f.other, N_TOKENS, 70, n);
        assert_memory_equal(&one, &more, sizeof one);
    }
}

/* ---- progress and wrong arguments ------------------------------------------------------------ */

typedef struct witness {
    int n_calls, stop_at;
    double done, total;
} witness;

static bool watch(void *context, double done, double total)
{
    witness *w = context;
    assert_true(done > w->done && done <= total);
    w->done = done;
    w->total = total;
    return ++w->n_calls != w->stop_at;
}

static void test_progress(void **state)
{
    (void)state;
    dsmoe_comparison c;
    dsmoe_error error = {0};
    witness all = {0}, stopped = {.stop_at = 2};
    must(dsmoe_model_compare(f.model, f.other, f.tokens, N_TOKENS, 30, 1, watch, &all, &c, &error),
         &error, "comparing");
    assert_true(all.n_calls >= 5 && all.total == N_TOKENS);
    assert_int_equal(dsmoe_model_compare(f.model, f.other, f.tokens, N_TOKENS, 30, 1, watch,
                                         &stopped, &c, &error),
                     DSMOE_ERROR_STOPPED);
    assert_string_equal(error.message, "stopped");
    assert_int_equal(stopped.n_calls, 2);
}

static void refuse(const dsmoe_model *model, const dsmoe_model *against, const int32_t *tokens,
                   int64_t n, int64_t n_ctx, int n_threads)
{
    dsmoe_comparison c;
    dsmoe_error error = {0};
    assert_int_equal(
        dsmoe_model_compare(model, against, tokens, n, n_ctx, n_threads, NULL, NULL, &c, &error),
        DSMOE_ERROR_ARGUMENT);
    assert_true(error.message[0] != '\0');
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    refuse(NULL, f.other, f.tokens, 20, 10, 1);
    refuse(f.model, NULL, f.tokens, 20, 10, 1);
    refuse(f.model, f.other, NULL, 20, 10, 1);
    refuse(f.model, f.other, f.tokens, 1, 10, 1);
    refuse(f.model, f.other, f.tokens, 0, 10, 1);
    refuse(f.model, f.other, f.tokens, -5, 10, 1);
    refuse(f.model, f.other, f.tokens, 20, 1, 1);
    refuse(f.model, f.other, f.tokens, 20, -1, 1);
    refuse(f.model, f.other, f.tokens, 20, 10, -1);
    assert_int_equal(
        dsmoe_model_compare(f.model, f.other, f.tokens, 20, 10, 1, NULL, NULL, NULL, &error),
        DSMOE_ERROR_ARGUMENT);
    for (int at = 0; at < 20; at++) { /* the last token of a piece is predicted, but not run */
        int32_t tokens[20];
        memcpy(tokens, f.tokens, sizeof tokens);
        tokens[at] = at % 2 ? VOCAB : -1;
        refuse(f.model, f.other, tokens, 20, 10, 1);
    }
}

static void test_other_vocabulary(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    config.vocab_size = VOCAB + 1;
    make_folder("larger");
    made_model made = made_model_create(&config, "F32", 3);
    made_model_write(&made, in_directory("larger"), false);
    dsmoe_model *model = open_model(in_directory("larger"));
    refuse(f.model, model, f.tokens, 20, 10, 1);
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(in_directory("larger"));
    remove(in_directory("larger"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_itself),          cmocka_unit_test(test_another),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_progress),
        cmocka_unit_test(test_wrong_arguments), cmocka_unit_test(test_other_vocabulary),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

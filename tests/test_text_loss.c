/* test_text_loss.c - how well a model predicts a text, against the same loss computed token by token; and the
 * probes that are chosen for a model. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_model.h"
#include "scratch.h"
#include "study/probe_set.h"
#include "study/text_loss.h"

enum { N_TOKENS = 700, BOS = 3, VOCAB_MAX = 128 };

static made_model made;
static dsmoe_model *model;
static int32_t tokens[N_TOKENS];
static dsmoe_error error;

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_config();
    made = made_model_create(&config, "F32", 7);
    made_model_write(&made, directory, false);
    model = open_model(directory);
    made_tokens(&made, tokens, N_TOKENS, 5);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
    return remove_directory(state);
}

/* ---- the same loss, token by token ------------------------------------------------------------- */

/* -log probability of a token after the tokens of a prompt. */
static double loss_after(const int32_t *prompt, int64_t n, int32_t token)
{
    float logits[VOCAB_MAX];
    double sum = 0;
    dsmoe_sequence *sequence = make_sequence(model, n, n, 1);
    prefill(sequence, prompt, n, logits);
    free_sequence(sequence);
    for (int64_t i = 0; i < made.config.vocab_size; i++) sum += exp((double)logits[i]);
    return log(sum) - (double)logits[token];
}

/* Each token is scored in the first window that reaches it. */
static text_loss measure_again(const token_text *text, int64_t n_ctx, int64_t stride)
{
    text_loss r = {0};
    int64_t n_bos = text->bos >= 0, start = 0;
    int32_t prompt[N_TOKENS + 1] = {text->bos};
    for (int64_t i = n_bos ? 0 : 1; i < text->n_tokens; i++) {
        while (i >= start + n_ctx - n_bos) start += stride;
        memcpy(prompt + n_bos, text->tokens + start, (size_t)(i - start) * sizeof *prompt);
        double loss = loss_after(prompt, n_bos + i - start, text->tokens[i]);
        r.sum += loss;
        r.sum_squares += loss * loss;
        r.n_scored++;
    }
    r.n_windows = start / stride + 1;
    return r;
}

static void expect_same(const token_text *text, int64_t n_ctx, int64_t stride)
{
    text_loss again = measure_again(text, n_ctx, stride), r;
    text_loss_options o = {.engine = {.n_ctx = n_ctx, .n_threads = 2}, .stride = stride};
    must(text_loss_measure(model, text, &o, &r, &error), &error, "measure");
    assert_false(r.interrupted);
    assert_int_equal(r.n_scored, again.n_scored);
    assert_int_equal(r.n_windows, again.n_windows);
    assert_int_equal(r.n_bytes, 0);
    assert_true(fabs(r.sum - again.sum) < 1e-4 * again.sum);
    assert_true(fabs(r.sum_squares - again.sum_squares) < 1e-4 * again.sum_squares);
}

static void test_windows(void **state)
{
    (void)state;
    const token_text with_bos = {tokens, 40, BOS}, without = {tokens, 40, -1};
    static const int64_t cases[][2] = {{41, 20}, {40, 39}, {16, 8}, {16, 15}, {16, 1}, {2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_same(&with_bos, cases[i][0], cases[i][1]);
        expect_same(&without, cases[i][0], cases[i][1]);
    }
    const token_text one = {tokens, 1, BOS};
    expect_same(&one, 2, 1);
}

/* ---- progress ---------------------------------------------------------------------------------- */

typedef struct seen {
    int n_calls, stop_after; /* calls; 0: never */
    double done, total;
} seen;

static bool see(void *context, double done, double total)
{
    seen *s = context;
    s->n_calls++;
    assert_true(done > s->done && done <= total);
    s->done = done;
    s->total = total;
    return s->n_calls != s->stop_after;
}

/* A window longer than one batch; the progress ends at its total. */
static void test_progress(void **state)
{
    (void)state;
    const token_text text = {tokens, N_TOKENS, BOS};
    seen s = {0};
    text_loss_options o = {.engine = {.n_ctx = 600}, .stride = 300, .progress = see, .context = &s};
    text_loss r;
    must(text_loss_measure(model, &text, &o, &r, &error), &error, "measure");
    assert_true(s.n_calls > 2 && s.done == s.total && s.done == (double)r.n_run);
    assert_int_equal(r.n_scored, N_TOKENS);
    text_loss_numbers numbers = text_loss_compute(&r);
    assert_true(fabs(numbers.cross_entropy - r.sum / N_TOKENS) < 1e-12);
    assert_true(numbers.error > 0 && numbers.error < numbers.cross_entropy);
    assert_true(numbers.perplexity == exp(numbers.cross_entropy) && numbers.bits_per_byte == 0);
}

static bool stop_at_once(void *context)
{
    (void)context;
    return true;
}

/* What was read before the interruption counts. */
static void test_interrupted(void **state)
{
    (void)state;
    const token_text text = {tokens, N_TOKENS, BOS};
    seen s = {.stop_after = 1};
    text_loss_options o = {
        .engine = {.n_ctx = 600}, .stride = 300, .n_bytes = 5000, .progress = see, .context = &s};
    text_loss r;
    must(text_loss_measure(model, &text, &o, &r, &error), &error, "measure");
    assert_true(r.interrupted && r.n_scored == 512 && r.n_run == 512 && r.n_bytes == 0);
    o.engine.stop = stop_at_once;
    must(text_loss_measure(model, &text, &o, &r, &error), &error, "measure");
    assert_true(r.interrupted && r.n_scored == 0);
    o = (text_loss_options){.engine = {.n_ctx = 600}, .stride = 300, .n_bytes = 5000};
    must(text_loss_measure(model, &text, &o, &r, &error), &error, "measure");
    assert_int_equal(r.n_bytes, 5000);
}

static void test_refusals(void **state)
{
    (void)state;
    const token_text text = {tokens, 40, BOS}, one = {tokens, 1, -1};
    text_loss_options o = {.engine = {.n_ctx = 16}, .stride = 16};
    text_loss r;
    assert_int_equal(text_loss_measure(model, &text, &o, &r, &error), DSMOE_ERROR_ARGUMENT);
    o.stride = 0;
    assert_int_equal(text_loss_measure(model, &text, &o, &r, &error), DSMOE_ERROR_ARGUMENT);
    o.stride = 8;
    assert_int_equal(text_loss_measure(model, &one, &o, &r, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "nothing before it"));
}

/* ---- probes ------------------------------------------------------------------------------------ */

static void expect_probes(int64_t n, int64_t k, int64_t n_shared, const char *labels)
{
    dsmoe_config config = {
        .n_routed_experts = n, .num_experts_per_tok = k, .n_shared_experts = n_shared};
    probe_choice choices[PROBE_SET_MOST];
    char text[PROBE_SET_MOST * (PROBE_LABEL + 2)] = "";
    int n_choices = probe_set_choose(&config, choices);
    for (int i = 0; i < n_choices; i++) {
        strcat(text, i ? ", " : "");
        strcat(text, choices[i].label);
    }
    assert_string_equal(text, labels);
}

static void test_probe_set(void **state)
{
    (void)state;
    expect_probes(63, 3, 1,
                  "none, top 1/16 masked, top 2/16 masked, top 3/16 masked, top 4/16 masked, "
                  "shared replaced, 2 active, 1 active");
    expect_probes(8, 7, 2,
                  "none, top 1/16 masked, 6 active, 5 active, 4 active, 3 active, "
                  "2 active, 1 active");
    expect_probes(64, 15, 0,
                  "none, top 1/16 masked, top 2/16 masked, top 3/16 masked, top 4/16 masked, "
                  "13 active, 11 active, 9 active, 7 active, 5 active, 3 active, 1 active");
    expect_probes(4, 1, 1, "none, top 2/16 masked, shared replaced");
    expect_probes(0, 0, 0, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),     cmocka_unit_test(test_progress),
        cmocka_unit_test(test_interrupted), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_probe_set),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

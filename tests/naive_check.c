/* naive_check.c - a made model in the library against the same model in plain arithmetic. */
#include "naive_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Puts rows next to each other as they are visited. */
typedef struct kept_rows {
    float *at;
    int64_t width, next;
} kept_rows;

static void keep_row(void *context, int64_t row, const float *logits)
{
    kept_rows *kept = context;
    assert_int_equal(row, kept->next);
    memcpy(kept->at + row * kept->width, logits, (size_t)kept->width * sizeof *logits);
    kept->next++;
}

static double tolerance_of(const naive_case *c) { return c->tolerance > 0 ? c->tolerance : 1e-5; }

static void compare(const naive_case *c, const char *how, const float *ours, const double *expected,
                    int64_t n)
{
    double worst = worst_difference(ours, expected, n);
    if (!(worst <= tolerance_of(c))) fail_msg("%s, %s: off by %g", c->name, how, worst);
}

static double loss_of(const double *logits, int64_t n, int32_t target)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - logits[target]);
    return log(sum);
}

void naive_check_whole(dsmoe_sequence *sequence, const naive_case *c, const int32_t *tokens,
                       const naive_result *expected)
{
    dsmoe_error error = {0};
    const char *name = c->name;
    int64_t n = c->n_tokens, vocab = c->config->vocab_size;
    kept_rows kept = {.at = malloc((size_t)(n * vocab) * sizeof(float)), .width = vocab};
    int64_t half = (n + 1) / 2, first = n - half;
    int32_t *targets = calloc((size_t)n, sizeof *targets);
    float *loss = malloc((size_t)half * sizeof *loss);
    assert_true(kept.at && targets && loss);
    dsmoe_turn turn = {sequence, tokens, n, n, keep_row, &kept, NULL, NULL, false, {0}};
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         name);
    assert_int_equal(kept.next, n);
    assert_int_equal(dsmoe_sequence_length(sequence), n);
    compare(c, "at once", kept.at, expected->logits, n * vocab);

    for (int64_t i = 0; i < half; i++) targets[i] = tokens[(first + i + 1) % n];
    turn = (dsmoe_turn){sequence, tokens, n, half, NULL, NULL, targets, loss, false, {0}};
    must(dsmoe_sequence_rewind(sequence, 0, &error), &error, name);
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         name);
    for (int64_t i = 0; i < half; i++) {
        double right = loss_of(expected->logits + (first + i) * vocab, vocab, targets[i]);
        if (!(fabs(loss[i] - right) <= tolerance_of(c) * fmax(1, right)))
            fail_msg("%s: loss %g, %g is right", name, loss[i], right);
    }
    free(loss);
    free(targets);
    free(kept.at);
}

/* A prompt, some single tokens, and the rest. */
static void check_pieces(dsmoe_sequence *sequence, const naive_case *c, const int32_t *tokens,
                         const naive_result *expected)
{
    dsmoe_error error = {0};
    const char *name = c->name;
    int64_t n = c->n_tokens, vocab = c->config->vocab_size;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    assert_non_null(logits);
    must(dsmoe_sequence_rewind(sequence, 0, &error), &error, name);
    int64_t prompt = (n + 2) / 3, done = 0;
    while (done < n) {
        int64_t piece = done == 0 ? prompt : done < prompt + 4 ? 1 : n - done;
        if (piece == 1)
            must(dsmoe_sequence_append(sequence, &tokens[done], 1, logits, &error), &error, name);
        else
            must(dsmoe_sequence_append(sequence, tokens + done, piece, logits, &error), &error,
                 name);
        done += piece;
        compare(c, "in pieces", logits, expected->logits + (done - 1) * vocab, vocab);
    }
    free(logits);
}

/* Sequences that share passes: each has part of its tokens in the first pass and the rest in the second. */
static void check_together(const dsmoe_model *model, const naive_case *c, const int32_t *tokens,
                           const naive_result *expected)
{
    enum { N = 3 };
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_engine_options options = {.n_ctx = c->n_tokens, .n_sequences = N, .n_threads = 2};
    int64_t vocab = c->config->vocab_size;
    dsmoe_turn turns[N];
    kept_rows kept[N];
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, c->name);
    for (int i = 0; i < N; i++) {
        kept[i] = (kept_rows){.at = malloc((size_t)(c->n_tokens * vocab) * sizeof(float)),
                              .width = vocab};
        assert_non_null(kept[i].at);
        turns[i] = (dsmoe_turn){.visit = keep_row, .context = &kept[i]};
        must(dsmoe_sequence_create(engine, &turns[i].sequence, &error), &error, c->name);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < N; i++) {
            int64_t middle = (i + 1) * c->n_tokens / (N + 1), begin = pass ? middle : 0;
            turns[i].tokens = tokens + begin;
            turns[i].n_tokens = turns[i].n_logits = (pass ? c->n_tokens : middle) - begin;
            kept[i].next = 0;
            kept[i].at += pass * middle * vocab;
        }
        must(dsmoe_engine_forward(engine, turns, N, &error), &error, c->name);
    }
    for (int i = 0; i < N; i++) {
        kept[i].at -= (i + 1) * c->n_tokens / (N + 1) * vocab;
        compare(c, "together", kept[i].at, expected->logits, c->n_tokens * vocab);
        free(kept[i].at);
    }
    dsmoe_engine_free(engine);
}

void naive_check(const naive_case *c, const char *folder)
{
    made_model made = made_model_create(c->config, c->dtype, c->seed);
    made_model_write(&made, folder, c->odd);
    int32_t *tokens = malloc((size_t)c->n_tokens * sizeof *tokens);
    assert_non_null(tokens);
    made_tokens(&made, tokens, c->n_tokens, c->seed);
    naive_result expected = naive_model_run(&made, tokens, c->n_tokens);
    if (expected.margin < 1e-6) fail_msg("%s: take another seed, experts tie", c->name);

    dsmoe_model *model = open_model(folder);
    dsmoe_sequence *sequence =
        make_sequence(model, c->n_tokens, c->n_batch, 1 + (int)(c->seed % 2));
    naive_check_whole(sequence, c, tokens, &expected);
    check_pieces(sequence, c, tokens, &expected);
    if (c->n_tokens > 3) check_together(model, c, tokens, &expected);
    free_sequence(sequence);
    dsmoe_model_free(model);
    naive_result_free(&expected);
    made_model_free(&made);
    free(tokens);
}

/* model_folder.c - runs the model of a folder over the token ids of its expected.safetensors in every way
 * there is (whole rows, odd pieces, token by token, several rows together) and compares the results with
 * the file. */
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "model/config.h"
#include "moe/balance.h"
#include "verify/compare.h"
#include "verify/expected.h"
#include "verify/report.h"
#include "verify/training.h"

enum { MOST_TOGETHER = 8 }; /* most rows in one pass */

typedef struct model_run {
    const char *path;
    int n_threads;
    verify_report report;
    dsmoe_model *model;
    const dsmoe_config *config;
    expected_file expected;
    dsmoe_engine *engine;
    dsmoe_sequence *sequences[MOST_TOGETHER];
    int64_t n_sequences, n_moe_layers;
    void *memory; /* memory for all arrays below */
    int32_t *tokens, *greedy, *targets;
    float *loss, *logits;  /* for one row of tokens; for one token */
    dsmoe_routing routing; /* [n_moe_layers] times all tokens, without the gate values */
    double *balance;       /* scratch */
    int64_t row;           /* the current row of tokens */
} model_run;

/* ---- setting up ---------------------------------------------------------------------------- */

static int64_t count_tokens(const model_run *run)
{
    return run->expected.n_sequences * run->expected.sequence_length; /* cannot overflow */
}

static void place_arrays(model_run *run, arena *a)
{
    int64_t n_tokens = count_tokens(run), length = run->expected.sequence_length;
    int64_t n_experts = run->config->n_routed_experts, k = run->config->num_experts_per_tok;
    run->tokens = arena_take(a, n_tokens, sizeof *run->tokens);
    run->targets = arena_take(a, length, sizeof *run->targets);
    run->greedy = arena_take(a, run->expected.n_greedy, sizeof *run->greedy);
    run->loss = arena_take(a, length, sizeof *run->loss);
    run->logits = arena_take(a, run->config->vocab_size, sizeof *run->logits);
    run->balance = arena_take(a, 2 * n_experts, sizeof *run->balance);
    run->routing.scores =
        arena_take(a, run->n_moe_layers * n_tokens, (size_t)n_experts * sizeof(float));
    run->routing.topk_idx =
        arena_take(a, run->n_moe_layers * n_tokens, (size_t)k * sizeof(int32_t));
}

static dsmoe_status make_arrays(model_run *run, dsmoe_error *error)
{
    arena measured = arena_over(NULL);
    place_arrays(run, &measured);
    size_t size = arena_size(&measured);
    run->memory = size ? calloc(1, size) : NULL;
    if (!run->memory) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", run->path);
    arena place = arena_over(run->memory);
    place_arrays(run, &place);
    /* A token whose routing is not reported must not count as correct. */
    int64_t n_scores = run->n_moe_layers * count_tokens(run) * run->config->n_routed_experts;
    for (int64_t i = 0; i < n_scores; i++) run->routing.scores[i] = NAN;
    return DSMOE_OK;
}

static dsmoe_status make_engine(model_run *run, dsmoe_error *error)
{
    const expected_file *e = &run->expected;
    int64_t n_ctx = e->n_greedy > e->sequence_length ? e->n_greedy : e->sequence_length;
    run->n_sequences = e->n_sequences < MOST_TOGETHER ? e->n_sequences : MOST_TOGETHER;
    dsmoe_engine_options options = {
        .n_ctx = n_ctx, .n_sequences = run->n_sequences, .n_threads = run->n_threads};
    STATUS_TRY(dsmoe_engine_create(run->model, &options, &run->engine, error));
    for (int64_t i = 0; i < run->n_sequences; i++)
        STATUS_TRY(dsmoe_sequence_create(run->engine, &run->sequences[i], error));
    return DSMOE_OK;
}

static dsmoe_status set_up(model_run *run, dsmoe_error *error)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/expected.safetensors", run->path) >= (int)sizeof path)
        return status_fail(error, DSMOE_ERROR_IO, "%.128s…: the path is too long", run->path);
    STATUS_TRY(dsmoe_model_open(run->path, &run->model, error));
    run->config = dsmoe_model_config(run->model);
    run->n_moe_layers = config_moe_layers(run->config, run->config->num_hidden_layers);
    STATUS_TRY(expected_open(&run->expected, path, run->model, error));
    STATUS_TRY(make_arrays(run, error));
    const expected_file *e = &run->expected;
    STATUS_TRY(expected_read_tokens(e, e->input_ids, run->tokens, error));
    return e->greedy ? expected_read_tokens(e, e->greedy, run->greedy, error) : DSMOE_OK;
}

static void tear_down(model_run *run)
{
    dsmoe_engine_free(run->engine);
    free(run->memory);
    expected_close(&run->expected);
    dsmoe_model_free(run->model);
}

/* ---- logits -------------------------------------------------------------------------------- */

/* Compares the logits of successive tokens, beginning with `token`. */
typedef struct logits_check {
    const expected_file *expected;
    int64_t token, n_seen;
    difference sum;
} logits_check;

static void compare_logits(logits_check *check, int64_t row, const float *logits)
{
    size_t n = (size_t)check->expected->vocab_size;
    difference_add_part(&check->sum, logits, check->expected->logits,
                        (size_t)(check->token + row) * n, n);
    check->n_seen++;
}

static void on_logits(void *context, int64_t row, const float *logits)
{
    compare_logits(context, row, logits);
}

static void report_logits(model_run *run, const char *name, logits_check *check)
{
    if (check->n_seen != count_tokens(run)) check->sum.undefined = true; /* some are missing */
    report_difference(&run->report, name, &check->sum);
}

static dsmoe_status start_over(model_run *run, dsmoe_error *error)
{
    for (int64_t i = 0; i < run->n_sequences; i++)
        STATUS_TRY(dsmoe_sequence_rewind(run->sequences[i], 0, error));
    return DSMOE_OK;
}

/* ---- whole rows, with their losses and their routing ---------------------------------------- */

static void on_routing(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                       const dsmoe_routing *routing)
{
    model_run *run = context;
    int64_t n_experts = run->config->n_routed_experts, k = run->config->num_experts_per_tok;
    int64_t place = config_moe_layers(run->config, layer) * count_tokens(run) +
                    run->row * run->expected.sequence_length + first;
    memcpy(run->routing.scores + place * n_experts, routing->scores,
           (size_t)(n_tokens * n_experts) * sizeof *routing->scores);
    memcpy(run->routing.topk_idx + place * k, routing->topk_idx,
           (size_t)(n_tokens * k) * sizeof *routing->topk_idx);
}

/* The model's balance loss is the sum over its layers. */
static double sum_balance(const model_run *run)
{
    dsmoe_layer_config config = dsmoe_config_layer(run->config);
    int64_t n_tokens = count_tokens(run);
    double sum = 0;
    for (int64_t i = 0; i < run->n_moe_layers; i++) {
        dsmoe_routing routing = {
            .scores = run->routing.scores + i * n_tokens * config.n_routed_experts,
            .topk_idx = run->routing.topk_idx + i * n_tokens * config.num_experts_per_tok,
        };
        balance_batch batch = {.config = &config,
                               .routing = routing,
                               .of = {.n_sequences = run->expected.n_sequences,
                                      .sequence_length = run->expected.sequence_length}};
        sum += balance_losses(&batch, run->balance).aux_loss;
    }
    return sum;
}

/* Runs one row; adds the -log probabilities of its tokens, except the first. */
static dsmoe_status run_row(model_run *run, logits_check *check, double *loss, dsmoe_error *error)
{
    int64_t length = run->expected.sequence_length;
    const int32_t *tokens = run->tokens + run->row * length;
    memcpy(run->targets, tokens + 1, (size_t)(length - 1) * sizeof *tokens);
    run->targets[length - 1] = tokens[0]; /* not known: its loss is ignored */
    check->token = run->row * length;
    dsmoe_turn turn = {.sequence = run->sequences[0],
                       .tokens = tokens,
                       .n_tokens = length,
                       .n_logits = length,
                       .visit = on_logits,
                       .context = check,
                       .targets = run->targets,
                       .loss = run->loss};
    STATUS_TRY(start_over(run, error));
    STATUS_TRY(dsmoe_engine_forward(run->engine, &turn, 1, error));
    for (int64_t i = 0; i < length - 1; i++) *loss += run->loss[i];
    return DSMOE_OK;
}

static dsmoe_status run_whole(model_run *run, double *loss, dsmoe_error *error)
{
    logits_check check = {.expected = &run->expected};
    dsmoe_status status = DSMOE_OK;
    *loss = 0;
    dsmoe_sequence_watch(run->sequences[0], on_routing, run);
    for (run->row = 0; run->row < run->expected.n_sequences && status == DSMOE_OK; run->row++)
        status = run_row(run, &check, loss, error);
    dsmoe_sequence_watch(run->sequences[0], NULL, NULL);
    STATUS_TRY(status);
    *loss /= (double)(count_tokens(run) - run->expected.n_sequences);
    report_logits(run, "logits", &check);
    return DSMOE_OK;
}

/* ---- other passes over the same rows --------------------------------------------------------- */

static dsmoe_status run_pieces(model_run *run, dsmoe_error *error)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 11, 13};
    int64_t length = run->expected.sequence_length;
    logits_check check = {.expected = &run->expected};
    for (int64_t row = 0; row < run->expected.n_sequences; row++) {
        STATUS_TRY(start_over(run, error));
        size_t piece = 0;
        for (int64_t first = 0; first < length; piece++) {
            int64_t n = sizes[piece % (sizeof sizes / sizeof *sizes)];
            if (n > length - first) n = length - first;
            check.token = row * length + first;
            dsmoe_turn turn = {.sequence = run->sequences[0],
                               .tokens = run->tokens + check.token,
                               .n_tokens = n,
                               .n_logits = n,
                               .visit = on_logits,
                               .context = &check};
            STATUS_TRY(dsmoe_engine_forward(run->engine, &turn, 1, error));
            first += n;
        }
    }
    report_logits(run, "logits in pieces", &check);
    return DSMOE_OK;
}

static dsmoe_status run_tokens(model_run *run, dsmoe_error *error)
{
    logits_check check = {.expected = &run->expected};
    for (int64_t i = 0; i < count_tokens(run); i++) {
        if (i % run->expected.sequence_length == 0) STATUS_TRY(start_over(run, error));
        STATUS_TRY(
            dsmoe_sequence_append(run->sequences[0], &run->tokens[i], 1, run->logits, error));
        compare_logits(&check, i, run->logits);
    }
    report_logits(run, "logits token by token", &check);
    return DSMOE_OK;
}

/* Runs n_rows rows, beginning with `first`, each in its own sequence, in two passes. In the first pass,
 * half of the rows have a third of their tokens, the other half two thirds. */
static dsmoe_status run_group(model_run *run, int64_t first, int64_t n_rows, logits_check *total,
                              dsmoe_error *error)
{
    int64_t length = run->expected.sequence_length;
    logits_check checks[MOST_TOGETHER];
    dsmoe_turn turns[MOST_TOGETHER];
    STATUS_TRY(start_over(run, error));
    for (int pass = 0; pass < 2; pass++) {
        int64_t n_turns = 0;
        for (int64_t i = 0; i < n_rows; i++) {
            int64_t middle = (1 + i % 2) * length / 3;
            int64_t begin = pass ? middle : 0, n = (pass ? length : middle) - begin;
            if (n == 0) continue;
            checks[n_turns] =
                (logits_check){.expected = &run->expected, .token = (first + i) * length + begin};
            turns[n_turns] = (dsmoe_turn){.sequence = run->sequences[i],
                                          .tokens = run->tokens + checks[n_turns].token,
                                          .n_tokens = n,
                                          .n_logits = n,
                                          .visit = on_logits,
                                          .context = &checks[n_turns]};
            n_turns++;
        }
        if (n_turns > 0) STATUS_TRY(dsmoe_engine_forward(run->engine, turns, n_turns, error));
        for (int64_t i = 0; i < n_turns; i++) {
            difference_merge(&total->sum, &checks[i].sum);
            total->n_seen += checks[i].n_seen;
        }
    }
    return DSMOE_OK;
}

static dsmoe_status run_together(model_run *run, dsmoe_error *error)
{
    if (run->n_sequences < 2) return DSMOE_OK;
    logits_check total = {.expected = &run->expected};
    for (int64_t row = 0; row < run->expected.n_sequences; row += run->n_sequences) {
        int64_t rest = run->expected.n_sequences - row;
        STATUS_TRY(
            run_group(run, row, rest < run->n_sequences ? rest : run->n_sequences, &total, error));
    }
    report_logits(run, "logits of rows together", &total);
    return DSMOE_OK;
}

/* ---- greedy continuation --------------------------------------------------------------------- */

static int32_t likeliest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static dsmoe_status run_greedy(model_run *run, dsmoe_error *error)
{
    if (!run->expected.greedy) return DSMOE_OK;
    dsmoe_sequence *sequence = run->sequences[0];
    int64_t n_different = 0, n_greedy = run->expected.n_greedy;
    STATUS_TRY(start_over(run, error));
    STATUS_TRY(dsmoe_sequence_append(sequence, run->greedy, EXPECTED_PROMPT, run->logits, error));
    for (int64_t i = EXPECTED_PROMPT; i < n_greedy; i++) {
        int32_t token = likeliest(run->logits, run->config->vocab_size);
        n_different += token != run->greedy[i];
        if (i + 1 < n_greedy)
            STATUS_TRY(dsmoe_sequence_append(sequence, &token, 1, run->logits, error));
    }
    report_tokens(&run->report, "greedy", n_different, n_greedy - EXPECTED_PROMPT);
    return DSMOE_OK;
}

/* ---- everything ----------------------------------------------------------------------------- */

/* Reports tensors in the file that nothing here computes. */
static void report_unchecked(model_run *run)
{
    const expected_file *e = &run->expected;
    for (size_t i = 0; i < safetensors_count(e->file); i++) {
        const safetensors_tensor *tensor = safetensors_at(e->file, i);
        if (!expected_is_checked(e, tensor)) report_skipped(&run->report, tensor->name);
    }
}

static dsmoe_status run_passes(model_run *run, dsmoe_error *error)
{
    double loss;
    STATUS_TRY(make_engine(run, error));
    STATUS_TRY(run_whole(run, &loss, error));
    STATUS_TRY(run_pieces(run, error));
    STATUS_TRY(run_tokens(run, error));
    STATUS_TRY(run_together(run, error));
    report_number(&run->report, "loss", loss, run->expected.loss);
    report_number(&run->report, "aux_loss", sum_balance(run), run->expected.aux_loss);
    STATUS_TRY(run_greedy(run, error));
    STATUS_TRY(training_check_gradients(run->model, &run->expected, run->tokens, run->n_threads,
                                        &run->report, error));
    STATUS_TRY(training_check_run(run->path, run->model, run->n_threads, &run->report, error));
    report_unchecked(run);
    return DSMOE_OK;
}

dsmoe_status dsmoe_verify_model_folder(const char *path, double tolerance, int n_threads,
                                       dsmoe_check_fn *report, void *context, bool *all_ok,
                                       dsmoe_error *error)
{
    if (all_ok) *all_ok = false;
    STATUS_TRY(report_check_arguments(path, tolerance, n_threads, error));
    model_run run = {
        .path = path, .n_threads = n_threads, .report = {tolerance, report, context, true}};
    dsmoe_status status = set_up(&run, error); /* its message names the file */
    if (status == DSMOE_OK) {
        dsmoe_error why = {0};
        status = run_passes(&run, &why);
        status = report_outcome(run.expected.file, path, status, &why, error);
    }
    if (status == DSMOE_OK && all_ok) *all_ok = run.report.all_ok;
    tear_down(&run);
    return status;
}

/* bench_lora.c - what adapters cost. Two sequences of one engine get the same tokens, one with the adapters
 * and one without. A pair is a few tokens of one, then the same tokens of the other; every second pair begins
 * with the other one. Other load on the machine changes its speed by more than an adapter costs, but hardly
 * between the two halves of a pair. */
#include "cli/bench_lora.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/statistics.h"
#include "cli/cli.h"

enum {
    PROMPT = 32,
    STEPS = 64,
    TOGETHER = 4, /* tokens of half a pair */
    MIN_PAIRS = 2 * STEPS / TOGETHER,
    MAX_PAIRS = 4096,
};

typedef struct bench {
    dsmoe_engine *engine;
    dsmoe_sequence *with, *without;
    int32_t tokens[PROMPT + STEPS];
    float *logits;
    double with_s[MAX_PAIRS], without_s[MAX_PAIRS]; /* per token */
    int n_pairs;
} bench;

static dsmoe_status prepare(bench *b, const dsmoe_model *model, const bench_lora_options *o,
                            dsmoe_error *error)
{
    static const double none[DSMOE_ADAPTERS_MAX] = {0};
    int64_t vocab = dsmoe_model_config(model)->vocab_size;
    bench_fill_tokens(b->tokens, PROMPT + STEPS, vocab, 4);
    dsmoe_engine_options options = {.n_ctx = PROMPT + STEPS,
                                    .n_sequences = 2,
                                    .n_batch = PROMPT,
                                    .n_threads = o->n_threads,
                                    .kv_type = o->kv_type,
                                    .same_bits = o->same_bits};
    lora_use(o->lora, &options);
    b->logits = malloc((size_t)vocab * sizeof *b->logits);
    if (!b->logits) {
        snprintf(error->message, sizeof error->message, "not enough memory");
        return error->status = DSMOE_ERROR_MEMORY;
    }
    dsmoe_status status = dsmoe_engine_create(model, &options, &b->engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(b->engine, &b->with, error);
    if (status == DSMOE_OK)
        status = dsmoe_sequence_begin_adapted(b->engine, b->tokens, 1, none, &b->without, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_append(b->with, b->tokens, PROMPT, NULL, error);
    if (status == DSMOE_OK)
        status = dsmoe_sequence_append(b->without, b->tokens, PROMPT, NULL, error);
    return status;
}

/* Times half a pair; *seconds is per token. */
static dsmoe_status time_half(const bench *b, dsmoe_sequence *s, int at, double *seconds,
                              dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    double start = cli_seconds();
    for (int i = 0; i < TOGETHER && status == DSMOE_OK; i++)
        status = dsmoe_sequence_append(s, &b->tokens[PROMPT + at + i], 1, b->logits, error);
    *seconds = (cli_seconds() - start) / TOGETHER;
    return status;
}

static dsmoe_status run_round(bench *b, dsmoe_error *error)
{
    dsmoe_status status = dsmoe_sequence_rewind(b->with, PROMPT, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_rewind(b->without, PROMPT, error);
    for (int at = 0; at < STEPS && b->n_pairs < MAX_PAIRS && status == DSMOE_OK; at += TOGETHER) {
        double *with = &b->with_s[b->n_pairs], *without = &b->without_s[b->n_pairs];
        bool first = b->n_pairs % 2 == 0;
        if (first) status = time_half(b, b->with, at, with, error);
        if (status == DSMOE_OK) status = time_half(b, b->without, at, without, error);
        if (!first && status == DSMOE_OK) status = time_half(b, b->with, at, with, error);
        b->n_pairs++;
    }
    return status;
}

static bench_lora_result summarise(bench *b)
{
    double lost[MAX_PAIRS];
    for (int i = 0; i < b->n_pairs; i++) lost[i] = 1 - b->without_s[i] / b->with_s[i];
    spread all = spread_of(lost, (size_t)b->n_pairs);
    return (bench_lora_result){
        .n_pairs = b->n_pairs,
        .with_tps = 1 / bench_median(b->with_s, b->n_pairs),
        .without_tps = 1 / bench_median(b->without_s, b->n_pairs),
        .lost_median = bench_median(lost, b->n_pairs),
        .lost_mean = all.mean,
        .lost_reach = interval_reach(all),
    };
}

dsmoe_status bench_lora_run(const dsmoe_model *model, const bench_lora_options *options,
                            bench_lora_result *result, dsmoe_error *error)
{
    static bench b; /* too large for a stack */
    b = (bench){0};
    dsmoe_status status = prepare(&b, model, options, error);
    if (status == DSMOE_OK) status = run_round(&b, error); /* warms up, and does not count */
    b.n_pairs = 0;
    double start = cli_seconds();
    while (status == DSMOE_OK && b.n_pairs < MAX_PAIRS &&
           (b.n_pairs < MIN_PAIRS || cli_seconds() - start < options->seconds))
        status = run_round(&b, error);
    if (status == DSMOE_OK) *result = summarise(&b);
    dsmoe_engine_free(b.engine);
    free(b.logits);
    return status;
}

void bench_lora_print(const bench_lora_result *r)
{
    printf(
        "adapters: decoding at %.2f tokens/s with them, %.2f without; %.1f%% are lost (median of "
        "%d pairs; mean %.1f%% ± %.1f%%)\n",
        r->with_tps, r->without_tps, 100 * r->lost_median, r->n_pairs, 100 * r->lost_mean,
        100 * r->lost_reach);
}

void bench_lora_print_json(const bench_lora_result *r)
{
    printf("\"lora\":{\"pairs\":%d,\"with_tps\":%.4f,\"without_tps\":%.4f,\"lost_median\":%.5f,"
           "\"lost_mean\":%.5f,\"lost_reach\":%.5f}",
           r->n_pairs, r->with_tps, r->without_tps, r->lost_median, r->lost_mean, r->lost_reach);
}

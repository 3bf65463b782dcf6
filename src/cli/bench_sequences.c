/* bench_sequences.c - tokens/s of decoding many sequences together, next to its limits: reading the weights
 * of all experts that some token chose, and multiply-adds.
 *
 * Every sequence has a random prompt of its own and gets random tokens. The same tokens everywhere would
 * choose the same experts, which would look too good. Cases take turns, so that all run under the same other
 * load. */
#include "cli/bench_sequences.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"

enum { PROMPT = 32, STEPS = 32, MIN_ROUNDS = 3, MAX_ROUNDS = 50 };
/* Seconds that a case is measured in one round; it may be less, as there are only STEPS steps. */
static const double window = 0.4;

/* One case and the results of its rounds. */
typedef struct measured {
    double best; /* tokens/s */
    double bandwidth[MAX_ROUNDS], fma[MAX_ROUNDS];
    double n_experts, n_steps; /* sums over all steps: experts of all layers that were chosen */
} measured;

typedef struct bench {
    const dsmoe_model *model;
    const dsmoe_config *config;
    const bench_sequences_options *options;
    const bench_probe *probe;
    dsmoe_engine *engine;
    int64_t most; /* the most sequences of a case */
    dsmoe_sequence **sequences;
    dsmoe_turn *turns;
    int32_t *tokens; /* [most, PROMPT + STEPS] */
    int32_t *prompt; /* [n_prompt] */
    float *loss;     /* [n_prompt] */
    bool *chosen;    /* [num_hidden_layers, n_routed_experts] in the present step */
    measured *cases;
    double prompt_s;
    int n_rounds;
} bench;

/* ---- preparing --------------------------------------------------------------------------------- */

static void see_experts(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                        const dsmoe_routing *routing)
{
    (void)position;
    bench *b = context;
    int64_t n = b->config->n_routed_experts, k = b->config->num_experts_per_tok;
    for (int64_t i = 0; i < n_tokens * k; i++) b->chosen[layer * n + routing->topk_idx[i]] = true;
}

static bool take_memory(bench *b)
{
    const dsmoe_config *c = b->config;
    size_t n = (size_t)b->most;
    b->sequences = calloc(n, sizeof *b->sequences);
    b->turns = calloc(n, sizeof *b->turns);
    b->tokens = calloc(n * (PROMPT + STEPS), sizeof *b->tokens);
    b->prompt = calloc((size_t)b->options->n_prompt, sizeof *b->prompt);
    b->loss = calloc((size_t)b->options->n_prompt, sizeof *b->loss);
    b->chosen = calloc((size_t)(c->num_hidden_layers * c->n_routed_experts) + 1, sizeof *b->chosen);
    b->cases = calloc((size_t)b->options->n_cases, sizeof *b->cases);
    return b->sequences && b->turns && b->tokens && b->prompt && b->loss && b->chosen && b->cases;
}

static dsmoe_status prepare(bench *b, dsmoe_error *error)
{
    const bench_sequences_options *o = b->options;
    for (int i = 0; i < o->n_cases; i++)
        if (o->n[i] > b->most) b->most = o->n[i];
    if (!take_memory(b)) {
        snprintf(error->message, sizeof error->message, "not enough memory");
        return error->status = DSMOE_ERROR_MEMORY;
    }
    int64_t each = PROMPT + STEPS, n_ctx = o->n_prompt > each ? o->n_prompt : each;
    dsmoe_engine_options options = {.n_ctx = n_ctx,
                                    .n_sequences = b->most,
                                    .n_batch = o->n_batch > b->most ? o->n_batch : b->most,
                                    .n_threads = o->n_threads,
                                    .kv_type = o->kv_type,
                                    .same_bits = o->same_bits};
    lora_use(o->lora, &options);
    dsmoe_status status = dsmoe_engine_create(b->model, &options, &b->engine, error);
    bench_fill_tokens(b->tokens, b->most * each, b->config->vocab_size, 2);
    bench_fill_tokens(b->prompt, o->n_prompt, b->config->vocab_size, 3);
    for (int64_t i = 0; i < b->most && status == DSMOE_OK; i++) {
        status = dsmoe_sequence_create(b->engine, &b->sequences[i], error);
        if (status != DSMOE_OK) break;
        status = dsmoe_sequence_append(b->sequences[i], b->tokens + i * each, PROMPT, NULL, error);
        dsmoe_sequence_watch(b->sequences[i], see_experts, b);
    }
    return status;
}

static void release(bench *b)
{
    dsmoe_engine_free(b->engine);
    free(b->sequences);
    free(b->turns);
    free(b->tokens);
    free(b->prompt);
    free(b->loss);
    free(b->chosen);
    free(b->cases);
}

/* ---- costs of a step --------------------------------------------------------------------------- */

/* Bytes of one routed expert, on average; and of all that every step reads, without the embedding. */
static void weight_bytes(const bench *b, double *expert, double *rest)
{
    double experts = 0, n_experts = 0;
    *rest = 0;
    for (int64_t i = 0; i < b->config->num_hidden_layers; i++)
        if (dsmoe_config_layer_is_moe(b->config, i))
            n_experts += (double)b->config->n_routed_experts;
    for (size_t i = 0; i < dsmoe_model_tensor_count(b->model); i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(b->model, i);
        bool is_embedding = !strcmp(t.name, "model.embed_tokens.weight");
        if (strstr(t.name, ".mlp.experts."))
            experts += (double)t.size;
        else if (!is_embedding || b->config->tie_word_embeddings)
            *rest += (double)t.size;
    }
    *expert = n_experts > 0 ? experts / n_experts : 0;
}

/* Bytes of the keys and values of the tokens before, averaged over the steps. */
static double cache_bytes(const bench *b)
{
    dsmoe_engine_info info = dsmoe_engine_get_info(b->engine);
    double of_token = (double)info.kv_cache / (double)(info.n_pages * info.page_tokens);
    return of_token * (PROMPT + STEPS / 2);
}

static double step_bytes(const bench *b, int64_t n, double n_experts)
{
    double expert, rest;
    weight_bytes(b, &expert, &rest);
    return rest + n_experts * expert + (double)n * cache_bytes(b);
}

/* Two FLOPs for each weight that a token is multiplied with. */
static double token_flops(const bench *b)
{
    dsmoe_model_plan plan;
    dsmoe_error error;
    if (dsmoe_model_plan_make(b->config, 1, &plan, &error) != DSMOE_OK) return 0;
    return 2 * (double)(plan.active - plan.embedding);
}

/* ---- measuring --------------------------------------------------------------------------------- */

static double count_chosen(bench *b)
{
    double n = 0;
    int64_t all = b->config->num_hidden_layers * b->config->n_routed_experts;
    for (int64_t i = 0; i < all; i++) n += b->chosen[i];
    memset(b->chosen, 0, (size_t)all * sizeof *b->chosen);
    return n;
}

/* Runs step number `step` of the first n sequences. */
static dsmoe_status run_step(bench *b, int64_t n, int64_t step, dsmoe_error *error)
{
    for (int64_t i = 0; i < n; i++)
        b->turns[i] = (dsmoe_turn){.sequence = b->sequences[i],
                                   .tokens = b->tokens + i * (PROMPT + STEPS) + PROMPT + step,
                                   .n_tokens = 1,
                                   .n_logits = 1};
    return dsmoe_engine_forward(b->engine, b->turns, n, error);
}

/* Runs as many steps as fit in a window, starting where the prompts end. */
static dsmoe_status run_case(bench *b, int number, double *seconds, int64_t *n_steps,
                             double *n_experts, dsmoe_error *error)
{
    int64_t n = b->options->n[number];
    *n_steps = 0;
    *n_experts = *seconds = 0;
    for (int64_t i = 0; i < n; i++) {
        dsmoe_status status = dsmoe_sequence_rewind(b->sequences[i], PROMPT, error);
        if (status != DSMOE_OK) return status;
    }
    count_chosen(b);
    double start = cli_seconds();
    while (*n_steps < STEPS && *seconds < window) {
        dsmoe_status status = run_step(b, n, *n_steps, error);
        if (status != DSMOE_OK) return status;
        ++*n_steps;
        *n_experts += count_chosen(b);
        *seconds = cli_seconds() - start;
    }
    return DSMOE_OK;
}

static dsmoe_status measure_case(bench *b, int number, dsmoe_error *error)
{
    measured *m = &b->cases[number];
    double n = (double)b->options->n[number], seconds, n_experts;
    int64_t n_steps;
    dsmoe_machine before = {0}, after = {0};
    dsmoe_status status = bench_probe_measure(b->probe, window, &before, error);
    if (status == DSMOE_OK) status = run_case(b, number, &seconds, &n_steps, &n_experts, error);
    if (status == DSMOE_OK) status = bench_probe_measure(b->probe, window, &after, error);
    if (status != DSMOE_OK) return status;
    double steps = (double)n_steps, rate = steps / seconds;
    double gbs = step_bytes(b, (int64_t)n, n_experts / steps) * rate * 1e-9;
    double gflops = token_flops(b) * n * rate * 1e-9;
    m->best = fmax(m->best, n * rate);
    m->bandwidth[b->n_rounds] = 2 * gbs / (before.read_gbs + after.read_gbs);
    m->fma[b->n_rounds] = 2 * gflops / (before.fma_gflops + after.fma_gflops);
    m->n_experts += n_experts;
    m->n_steps += steps;
    return DSMOE_OK;
}

/* Times a prompt with logits for every token: the most that many sequences could reach. */
static dsmoe_status measure_prompt(bench *b, dsmoe_error *error)
{
    dsmoe_turn turn = {.sequence = b->sequences[0],
                       .tokens = b->prompt,
                       .n_tokens = b->options->n_prompt,
                       .n_logits = b->options->n_prompt};
    dsmoe_status status = dsmoe_sequence_rewind(turn.sequence, 0, error);
    if (status != DSMOE_OK) return status;
    dsmoe_sequence_watch(turn.sequence, NULL, NULL);
    double start = cli_seconds();
    status = dsmoe_engine_forward(b->engine, &turn, 1, error);
    b->prompt_s = fmin(b->prompt_s, cli_seconds() - start);
    if (status == DSMOE_OK) status = dsmoe_sequence_rewind(turn.sequence, 0, error);
    if (status == DSMOE_OK)
        status = dsmoe_sequence_append(turn.sequence, b->tokens, PROMPT, NULL, error);
    dsmoe_sequence_watch(turn.sequence, see_experts, b);
    return status;
}

static dsmoe_status run_rounds(bench *b, dsmoe_error *error)
{
    double start = cli_seconds(), elapsed = 0, cases = b->options->n_cases + 1;
    progress bar = progress_start("many sequences", "cases");
    dsmoe_status status = measure_prompt(b, error); /* reads the files, and does not count */
    b->prompt_s = INFINITY;
    while (status == DSMOE_OK && b->n_rounds < MAX_ROUNDS &&
           (b->n_rounds < MIN_ROUNDS || elapsed < b->options->seconds)) {
        status = measure_prompt(b, error);
        for (int i = 0; i < b->options->n_cases && status == DSMOE_OK; i++)
            status = measure_case(b, i, error);
        b->n_rounds++;
        elapsed = cli_seconds() - start;
        double expected = fmax(b->options->seconds * b->n_rounds / elapsed, MIN_ROUNDS);
        progress_update(&bar, cases * b->n_rounds, cases * expected);
    }
    progress_finish(&bar);
    return status;
}

/* ---- results ----------------------------------------------------------------------------------- */

static void summarise(bench *b, bench_sequences_result *result)
{
    double n_layers = 0;
    for (int64_t i = 0; i < b->config->num_hidden_layers; i++)
        n_layers += dsmoe_config_layer_is_moe(b->config, i);
    for (int i = 0; i < b->options->n_cases; i++) {
        measured *m = &b->cases[i];
        double n_experts = m->n_experts / m->n_steps, n = (double)b->options->n[i];
        result->cases[i] = (bench_sequences_case){
            .tokens_per_s = m->best,
            .bandwidth_share = bench_median(m->bandwidth, b->n_rounds),
            .fma_share = bench_median(m->fma, b->n_rounds),
            .experts = n_layers > 0 ? n_experts / n_layers : 0,
            .bytes = step_bytes(b, b->options->n[i], n_experts) / n,
        };
    }
    result->prompt_logits_tps = (double)b->options->n_prompt / b->prompt_s;
}

dsmoe_status bench_sequences_run(const dsmoe_model *model, const bench_sequences_options *options,
                                 const bench_probe *probe, bench_sequences_result *result,
                                 dsmoe_error *error)
{
    bench b = {.model = model,
               .config = dsmoe_model_config(model),
               .options = options,
               .probe = probe,
               .most = 1,
               .prompt_s = INFINITY};
    dsmoe_status status = prepare(&b, error);
    if (status == DSMOE_OK) status = run_rounds(&b, error);
    if (status == DSMOE_OK) summarise(&b, result);
    release(&b);
    return status;
}

void bench_sequences_print(const bench_sequences_options *options,
                           const bench_sequences_result *result)
{
    printf("\nsequences   tokens/s   times one   experts   bytes a token   of reading   of "
           "multiply-adds\n");
    for (int i = 0; i < options->n_cases; i++) {
        const bench_sequences_case *c = &result->cases[i];
        double one = result->cases[0].tokens_per_s / (double)options->n[0];
        char bytes[CLI_BYTES];
        printf("%9lld %10.1f %11.2f %9.1f %15s %11.0f%% %15.0f%%\n", (long long)options->n[i],
               c->tokens_per_s, options->n[0] == 1 ? c->tokens_per_s / one : NAN, c->experts,
               cli_format_bytes(c->bytes, bytes), 100 * c->bandwidth_share, 100 * c->fma_share);
    }
    printf("a prompt of %lld with logits of every token: %.1f tokens/s\n",
           (long long)options->n_prompt, result->prompt_logits_tps);
}

void bench_sequences_print_json(const bench_sequences_options *options,
                                const bench_sequences_result *result)
{
    printf("\"sequences\":[");
    for (int i = 0; i < options->n_cases; i++) {
        const bench_sequences_case *c = &result->cases[i];
        printf("%s{\"n\":%lld,\"tokens_per_s\":%.4f,\"bandwidth_share\":%.4f,\"fma_share\":%.4f,"
               "\"experts\":%.2f,\"bytes_per_token\":%.0f}",
               i ? ",\n" : "", (long long)options->n[i], c->tokens_per_s, c->bandwidth_share,
               c->fma_share, c->experts, c->bytes);
    }
    printf("],\"prompt_logits_tps\":%.4f", result->prompt_logits_tps);
}

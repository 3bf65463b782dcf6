/* runner.c - a running model: prompts in pieces, the loop that picks tokens, and what they cost. */
#include "cli/runner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/kv_type.h"
#include "cli/logit_bias.h"
#include "cli/progress.h"

enum { DEFAULT_N_BATCH = 512, LAST_N_UNSET = -2, UNSET = -1 };

/* ---- options ------------------------------------------------------------------------------- */

void runner_options_rows(runner_options *o, option_row *rows)
{
    *o = (runner_options){
        .n_predict = o->n_predict,
        .n_batch = DEFAULT_N_BATCH,
        .temp = UNSET,
        .top_p = UNSET,
        .min_p = UNSET,
        .repeat_penalty = UNSET,
        .top_k = UNSET,
        .repeat_last_n = LAST_N_UNSET,
        .seed = UNSET,
    };
    o->stop = (option_words){o->stops, RUNNER_MAX_STOPS, 0};
    o->logit_bias = (option_words){o->bias_texts, RUNNER_MAX_BIASES, 0};
    const option_row table[RUNNER_N_OPTIONS] = {
        {"--model", "-m", OPTION_PATH, &o->model, 0, 0},
        {"--n-predict", "-n", OPTION_INTEGER, &o->n_predict, -1, INFINITY},
        {"--ctx-size", "-c", OPTION_INTEGER, &o->n_ctx, 0, 1 << 30},
        {"--batch-size", "-b", OPTION_INTEGER, &o->n_batch, 1, CLI_MAX_BATCH},
        {"--threads", "-t", OPTION_INTEGER, &o->n_threads, 1, CLI_MAX_THREADS},
        {"--kv-type", NULL, OPTION_NAME, &o->kv_type, 0, 0},
        {"--no-repack", NULL, OPTION_FLAG, &o->no_repack, 0, 0},
        lora_row(&o->lora),
        {"--temp", NULL, OPTION_NUMBER, &o->temp, 0, 100},
        {"--top-k", NULL, OPTION_INTEGER, &o->top_k, 0, INT32_MAX},
        {"--top-p", NULL, OPTION_NUMBER, &o->top_p, 0, 1},
        {"--min-p", NULL, OPTION_NUMBER, &o->min_p, 0, 1},
        {"--repeat-penalty", NULL, OPTION_NUMBER, &o->repeat_penalty, 0.01, 100},
        {"--repeat-last-n", NULL, OPTION_INTEGER, &o->repeat_last_n, -1, 1 << 24},
        {"--presence-penalty", NULL, OPTION_NUMBER, &o->presence_penalty, -100, 100},
        {"--frequency-penalty", NULL, OPTION_NUMBER, &o->frequency_penalty, -100, 100},
        {"--logit-bias", "-l", OPTION_LIST, &o->logit_bias, 0, 0},
        {"--seed", "-s", OPTION_INTEGER, &o->seed, -1, INFINITY},
        {"--ignore-eos", NULL, OPTION_FLAG, &o->ignore_eos, 0, 0},
        {"--special", NULL, OPTION_FLAG, &o->special, 0, 0},
        {"--stop", NULL, OPTION_LIST, &o->stop, 0, 0},
        {"--url", NULL, OPTION_TEXT, &o->url, 0, 0},
        {"--api-key", NULL, OPTION_TEXT, &o->api_key, 0, 0},
        {"--unix", NULL, OPTION_PATH, &o->unix_path, 0, 0},
        {"--cacert", NULL, OPTION_PATH, &o->ca_file, 0, 0},
    };
    memcpy(rows, table, sizeof table);
}

int runner_options_check(const char *command, runner_options *o)
{
    bool is_remote = o->url || o->unix_path;
    if (!o->model && !is_remote) return cli_usage(command, CLI_NO_MODEL);
    for (int i = 0; i < o->stop.count; i++)
        if (!*o->stop.at[i]) return cli_usage(command, "--stop needs a text that is not empty");
    for (int i = 0; i < o->logit_bias.count; i++)
        if (!logit_bias_parse(o->logit_bias.at[i], &o->biases[i]))
            return cli_usage(
                command, "--logit-bias must be a token id and a number such as 42:-1.5, not '%s'",
                o->logit_bias.at[i]);
    return is_remote ? CLI_OK : model_path_find(command, &o->model, &o->found);
}

dsmoe_sampler_options runner_model_sampling(const dsmoe_generation_config *config, int64_t capacity)
{
    dsmoe_sampler_options s = dsmoe_sampler_options_default();
    if (!config->do_sample) return s;
    s.temperature = config->temperature;
    s.top_k = config->top_k;
    s.top_p = config->top_p;
    s.min_p = 0;
    s.repeat_penalty = config->repetition_penalty;
    s.repeat_last_n = capacity; /* the public meaning of repetition_penalty */
    return s;
}

/* Options of the command line override those of the model, which override the defaults. */
static dsmoe_sampler_options
sampler_options(const runner_options *o, const dsmoe_generation_config *config, int64_t capacity)
{
    dsmoe_sampler_options s = runner_model_sampling(config, capacity);
    if (o->temp >= 0) s.temperature = o->temp;
    if (o->top_k >= 0) s.top_k = o->top_k;
    if (o->top_p >= 0) s.top_p = o->top_p;
    if (o->min_p >= 0) s.min_p = o->min_p;
    if (o->repeat_penalty >= 0) s.repeat_penalty = o->repeat_penalty;
    if (o->repeat_last_n != LAST_N_UNSET) s.repeat_last_n = o->repeat_last_n;
    s.presence_penalty = o->presence_penalty;
    s.frequency_penalty = o->frequency_penalty;
    s.logit_bias = o->biases;
    s.n_logit_bias = o->logit_bias.count;
    if (s.repeat_last_n < 0 || s.repeat_last_n > capacity) s.repeat_last_n = capacity;
    return s;
}

/* A seed that is short enough to be typed again. */
static uint64_t seed_from_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec) % 1000000000u;
}

/* ---- opening ------------------------------------------------------------------------------- */

static dsmoe_status open_sampler(runner *r, dsmoe_error *error)
{
    r->sampling.seed = r->seed;
    /* A model may have more ids than its tokenizer has tokens; the extra ids mean nothing. */
    int64_t n_ids = dsmoe_model_config(r->model)->vocab_size;
    if (r->tokenizer && dsmoe_tokenizer_size(r->tokenizer) < n_ids)
        n_ids = dsmoe_tokenizer_size(r->tokenizer);
    return dsmoe_sampler_create(&r->sampling, n_ids, &r->sampler, error);
}

void runner_begin_text(runner *r)
{
    dsmoe_sampler_reset(r->sampler);
    r->sampler_is_new = true;
}

int runner_reseed(const char *command, runner *r)
{
    dsmoe_error error;
    dsmoe_sampler_free(r->sampler);
    r->sampler = NULL;
    r->seed++;
    r->sampler_is_new = true;
    if (open_sampler(r, &error)) return cli_failure(command, "%s", error.message);
    return CLI_OK;
}

static int open_files(const char *command, const runner_options *o, const char *tokenizer_hint,
                      runner *r)
{
    dsmoe_error error;
    if (dsmoe_model_open_with(o->model, &(dsmoe_model_options){.share_weights = o->no_repack},
                              &r->model, &error))
        return cli_failure(command, "%s", error.message);
    if (tokenizer_hint && dsmoe_tokenizer_open(o->model, &r->tokenizer, &error))
        return cli_failure(command, "%s%s", error.message,
                           error.status == DSMOE_ERROR_IO ? tokenizer_hint : "");
    return CLI_OK;
}

static bool show_sending(void *context, double done, double total)
{
    progress_update(context, done, total);
    return !cli_interrupted();
}

/* Sends the other ranks their experts or, if this rank has failed (`code`), tells them that there are
 * none. */
static int divide(const char *command, const runner_options *o, int code, runner *r)
{
    if (!o->peers) return code;
    size_t n_ranks = (size_t)o->peers->size;
    dsmoe_rank_memory *memory = calloc(n_ranks, sizeof *memory);
    progress bar = progress_start("sending experts to the other ranks", "bytes");
    dsmoe_divide_options options = {.peers = o->peers,
                                    .n_batch = o->n_batch,
                                    .progress = show_sending,
                                    .context = &bar,
                                    .memory = memory};
    dsmoe_error error;
    dsmoe_status status = dsmoe_model_divide(code == CLI_OK ? r->model : NULL, &options, &error);
    progress_finish(&bar);
    for (size_t i = 1; memory && i < n_ranks; i++) {
        double taken = (double)memory[i].experts + (double)memory[i].workspace;
        if (taken > r->others_memory) r->others_memory = taken;
    }
    free(memory);
    if (code != CLI_OK || status == DSMOE_OK) return code;
    bool is_stopped = status == DSMOE_ERROR_STOPPED;
    if (!is_stopped || !cli_interrupted()) cli_failure(command, "%s", error.message);
    return is_stopped ? CLI_INTERRUPTED : CLI_FAILURE;
}

int runner_open(const char *command, runner_options *o, const char *tokenizer_hint, runner *r)
{
    *r = (runner){.path = o->model,
                  .lora = &o->lora,
                  .n_batch = o->n_batch,
                  .ignore_eos = o->ignore_eos,
                  .answer_end = -1};
    dsmoe_engine_options engine = {.n_ctx = o->n_ctx,
                                   .n_batch = o->n_batch,
                                   .n_threads = (int)o->n_threads,
                                   .kv_type = DSMOE_F16,
                                   .stop = cli_stop};
    dsmoe_error error;
    int code = kv_type_parse(command, o->kv_type, &engine.kv_type);
    if (code == CLI_OK) code = open_files(command, o, tokenizer_hint, r);
    if (code == CLI_OK) code = lora_open(command, &o->lora, r->model);
    lora_use(&o->lora, &engine);
    code = divide(command, o, code, r);
    if (code != CLI_OK) return code;
    if (dsmoe_engine_create(r->model, &engine, &r->engine, &error) ||
        dsmoe_sequence_create(r->engine, &r->sequence, &error))
        return kv_type_error(command, r->path, &error);
    r->capacity = dsmoe_engine_get_info(r->engine).n_ctx;
    cli_warn_of_context(command, dsmoe_model_config(r->model), r->capacity);
    r->sampling = sampler_options(o, dsmoe_model_generation_config(r->model), r->capacity);
    r->seed = o->seed >= 0 ? (uint64_t)o->seed : seed_from_clock();
    if (open_sampler(r, &error)) return cli_error(command, NULL, &error);
    r->logits = malloc((size_t)dsmoe_model_config(r->model)->vocab_size * sizeof *r->logits);
    r->tokens = malloc((size_t)r->capacity * sizeof *r->tokens);
    if (!r->logits || !r->tokens) return cli_failure(command, "not enough memory");
    return CLI_OK;
}

void runner_close(runner *r)
{
    free(r->tokens);
    free(r->logits);
    dsmoe_sampler_free(r->sampler);
    dsmoe_engine_free(r->engine);
    if (r->lora) lora_close(r->lora);
    dsmoe_tokenizer_free(r->tokenizer);
    dsmoe_model_free(r->model);
}

/* ---- reading a prompt ---------------------------------------------------------------------- */

/* How many tokens the sequence and `ids` have in common at the beginning. At least one of `ids` is left,
 * because its scores say what comes next. */
static int64_t common_prefix(const runner *r, const int32_t *ids, int64_t n_ids)
{
    int64_t length = dsmoe_sequence_length(r->sequence), n = 0;
    while (n < length && n + 1 < n_ids && r->tokens[n] == ids[n]) n++;
    return n;
}

/* Appends one piece to the sequence. */
static dsmoe_status read_piece(runner *r, const int32_t *ids, int64_t n, dsmoe_error *error)
{
    int64_t length = dsmoe_sequence_length(r->sequence);
    double start = cli_seconds();
    dsmoe_status status = dsmoe_sequence_append(r->sequence, ids, n, r->logits, error);
    if (status != DSMOE_OK) return status;
    r->prompt_seconds += cli_seconds() - start;
    r->n_prompt_tokens += n;
    memcpy(r->tokens + length, ids, (size_t)n * sizeof *ids);
    dsmoe_sampler_accept_prompt(r->sampler, ids, n);
    return DSMOE_OK;
}

static runner_end error_end(const dsmoe_error *error)
{
    return error->status == DSMOE_ERROR_STOPPED ? RUNNER_INTERRUPTED : RUNNER_FAILED;
}

runner_end runner_read(runner *r, const int32_t *ids, int64_t n_ids, dsmoe_error *error)
{
    int64_t kept = common_prefix(r, ids, n_ids);
    if (dsmoe_sequence_rewind(r->sequence, kept, error)) return RUNNER_FAILED;
    if (r->sampler_is_new) dsmoe_sampler_accept_prompt(r->sampler, r->tokens, kept);
    r->sampler_is_new = false;
    progress bar = progress_start("reading the prompt", "tokens");
    runner_end end = RUNNER_STOPPED;
    for (int64_t at = kept; at < n_ids && end == RUNNER_STOPPED; at += r->n_batch) {
        int64_t n = n_ids - at < r->n_batch ? n_ids - at : r->n_batch;
        if (read_piece(r, ids + at, n, error))
            end = error_end(error);
        else
            progress_update(&bar, (double)(at + n - kept), (double)(n_ids - kept));
    }
    progress_finish(&bar);
    return end;
}

/* ---- writing a text ------------------------------------------------------------------------ */

static bool ends_text(const runner *r, int32_t token)
{
    if (r->ignore_eos) return false;
    if (r->answer_end >= 0 && token == r->answer_end) return true;
    const dsmoe_generation_config *config = dsmoe_model_generation_config(r->model);
    for (int i = 0; i < config->n_eos_token_ids; i++)
        if (token == config->eos_token_id[i]) return true;
    if (config->n_eos_token_ids > 0) return false;
    /* generation_config.json names none, or does not exist */
    return token == dsmoe_model_config(r->model)->eos_token_id ||
           (r->tokenizer && token == dsmoe_tokenizer_eos(r->tokenizer));
}

static dsmoe_status decode(runner *r, int32_t token, dsmoe_error *error)
{
    int64_t length = dsmoe_sequence_length(r->sequence);
    double start = cli_seconds();
    dsmoe_status status = dsmoe_sequence_append(r->sequence, &token, 1, r->logits, error);
    if (status != DSMOE_OK) return status;
    r->decode_seconds += cli_seconds() - start;
    r->n_decoded_tokens++;
    r->tokens[length] = token;
    return DSMOE_OK;
}

runner_end runner_generate(runner *r, int64_t limit, runner_emit_fn *emit, void *context,
                           dsmoe_error *error)
{
    int32_t token = 0;
    bool pending = false; /* picked, but not in the sequence yet; the last one stays out */
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        if (cli_interrupted()) return RUNNER_INTERRUPTED;
        if (dsmoe_sequence_length(r->sequence) + pending >= r->capacity) return RUNNER_FULL;
        if (pending && decode(r, token, error)) return error_end(error);
        if (dsmoe_sampler_pick(r->sampler, r->logits, &token, error)) return RUNNER_FAILED;
        dsmoe_sampler_accept(r->sampler, token);
        pending = true;
        bool is_end = ends_text(r, token);
        bool goes_on = emit(context, token, is_end);
        if (is_end) return RUNNER_EOS;
        if (!goes_on) return RUNNER_STOPPED;
    }
    return RUNNER_LIMIT;
}

/* ---- costs --------------------------------------------------------------------------------- */

void runner_report_speed(const char *what, int64_t n_tokens, double seconds)
{
    fprintf(stderr, "%s %" PRId64 " token%s in %.2f s", what, n_tokens, n_tokens == 1 ? "" : "s",
            seconds);
    if (n_tokens > 0 && seconds > 0)
        fprintf(stderr, " (%.2f tokens/s)", (double)n_tokens / seconds);
}

void runner_report(const runner *r)
{
    char memory[CLI_BYTES];
    runner_report_speed("prompt:", r->n_prompt_tokens, r->prompt_seconds);
    runner_report_speed("; decode:", r->n_decoded_tokens, r->decode_seconds);
    fprintf(stderr, "; memory: %s", cli_format_bytes((double)cli_peak_rss(), memory));
    if (r->others_memory > 0)
        fprintf(stderr, " (other ranks at most %s)", cli_format_bytes(r->others_memory, memory));
    fprintf(stderr, "; seed: %" PRIu64 "\n", r->seed);
}

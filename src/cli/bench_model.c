/* bench_model.c - `dsmoe bench model`: tokens/s of a whole model, next to the best that the machine can
 * do. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>

#include "cli/bench_lora.h"
#include "cli/bench_sequences.h"
#include "cli/cli.h"
#include "cli/kv_type.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "formats/json_write.h"

static const char command[] = "bench model";

static const char help[] =
    "usage: dsmoe bench model -m PATH [options]\n"
    "\n"
    "Times a model on random token ids: a whole prompt, then tokens one by one after it. Both\n"
    "alternate with measurements of the machine's limits on the same threads: multiply-adds in\n"
    "registers and reading from memory, for 0.2 s each. Speeds are the best of all rounds, for\n"
    "the model and for the limits; a first round, which reads the files, does not count. Reading\n"
    "speed depends most on the machine's load, so each 0.2 s of decoding is compared with reading\n"
    "just before and after it, and the median of these shares is shown.\n"
    "\n"
    "  -m, --model PATH    the model: its folder, a training run or a .gguf file\n"
    "  -p, --n-prompt N    tokens of the prompt (512)\n"
    "  -n, --n-gen N       tokens decoded one by one after it (32)\n"
    "  -d, --n-depth N     tokens before the prompt, which are not timed (0)\n"
    "  -b, --batch-size N  tokens that go through the model together (512)\n"
    "  -t, --threads N     threads (all processors)\n"
    "      --kv-type TYPE  keys and values of the context as f32, f16 or q8_0 (f16)\n"
    "      --no-repack     keep no copies of quantised weights in the kernels' order\n" LORA_HELP
    "      --same-bits     the same bits whatever else runs, for float weights too\n"
    "      --sequences LIST  then decode these numbers of sequences together, such as\n"
    "                      1,2,4,8,16,32,64: random prompts of 32 tokens, then 32 random tokens\n"
    "      --seconds X     how long to measure (20, and at least three rounds)\n"
    "      --json          print one JSON object\n"
    "  -h, --help          this text\n"
    "\n"
    "Decoding is limited by reading. Its share is the bytes that a token reads times tokens/s over\n"
    "the bytes/s that the machine reads. A token reads weights (of the routed experts only those it\n"
    "uses, of the embedding one row) and the keys and values of all tokens before it.\n"
    "A prompt is limited by multiply-adds. Its FLOPs are 2 for each weight that a token is\n"
    "multiplied with (projections, dense layers, router, chosen and shared experts), the head\n"
    "for the last token only, and 4·hidden_size per layer (with latent attention 2·heads times the\n"
    "widths of a key and a value) for each pair of tokens of which one sees the other.\n"
    "Peak memory is that of a prompt and decoding, mapped weights included. Sequences that\n"
    "are decoded together read an expert once, however many of them chose it: their share of\n"
    "reading counts the experts that were really chosen. Attention's share of the time is the time\n"
    "of queries with the keys and values, or latents, of the tokens before.\n"
    "With --lora the same tokens are then decoded with and without the adapters, which alternate\n"
    "every four tokens, for as long again. This is because adapters cost less than the speed of a\n"
    "shared machine varies.\n"
    "\n"
    "examples:\n"
    "  dsmoe bench model -m deepseek-moe-16b-base -p 512 -n 32 --sequences 1,8,32\n"
    "  dsmoe bench model -m v2-lite.gguf -d 8192 -p 512 -n 32\n";

enum { MIN_ROUNDS = 3, MAX_ROUNDS = 100, MAX_SHARES = 4096 };
static const double decode_window = 0.2; /* seconds */

typedef struct bench_options {
    const char *path, *kv_type;
    int64_t n_depth, n_prompt, n_gen, n_batch, n_threads;
    double seconds;
    bench_sequences_options sequences;
    bool json, no_repack, same_bits;
    lora_list lora;
} bench_options;

typedef struct bench_state {
    const bench_options *options;
    lora_list *lora; /* those of the options */
    dsmoe_model *model;
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_engine_memory memory;
    dsmoe_dtype kv_type;
    int32_t *tokens; /* n_depth before, the prompt, then those to decode */
    float *logits;
    bench_probe probe;
} bench_state;

/* For each window of decoding, its share of the reading speed measured right before and after it. */
typedef struct shares {
    double at[MAX_SHARES];
    int n;
} shares;

/* Seconds of all rounds, and the part of them spent in attention. */
typedef struct share_of_time {
    double all, attention;
} share_of_time;

typedef struct bench_result {
    double open_s, engine_s; /* until the model is ready */
    double first_prefill_s;  /* of the round that does not count */
    double prefill_s;        /* the best */
    double token_s;          /* of decoding, the best */
    share_of_time prefill, decode;
    dsmoe_machine machine; /* the best */
    shares decode_shares;
    int n_rounds;
    int64_t peak_rss;
    bench_lora_result lora;
    bench_sequences_result sequences;
} bench_result;

/* ---- preparing ----------------------------------------------------------------------------- */

/* CLI_OK or an exit code. */
static int open_model(bench_state *s, bench_result *r)
{
    dsmoe_error error;
    double start = cli_seconds();
    dsmoe_model_options weights = {.share_weights = s->options->no_repack};
    if (dsmoe_model_open_with(s->options->path, &weights, &s->model, &error) != DSMOE_OK)
        return cli_failure(command, "%s", error.message);
    r->open_s = cli_seconds() - start;
    return lora_open(command, s->lora, s->model);
}

static dsmoe_status make_ready(bench_state *s, bench_result *r, dsmoe_error *error)
{
    const bench_options *o = s->options;
    dsmoe_engine_options options = {.n_ctx = o->n_depth + o->n_prompt + o->n_gen,
                                    .n_batch = o->n_batch,
                                    .n_threads = (int)o->n_threads,
                                    .kv_type = s->kv_type,
                                    .same_bits = o->same_bits};
    lora_use(s->lora, &options);
    double start = cli_seconds();
    dsmoe_status status = dsmoe_engine_create(s->model, &options, &s->engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(s->engine, &s->sequence, error);
    r->engine_s = cli_seconds() - start;
    s->memory = dsmoe_engine_memory_size(s->model, &options);
    return status;
}

/* False if there is not enough memory. */
static bool make_tokens(bench_state *s)
{
    int64_t n = s->options->n_depth + s->options->n_prompt + s->options->n_gen;
    int64_t vocab = dsmoe_model_config(s->model)->vocab_size;
    s->tokens = malloc((size_t)n * sizeof *s->tokens);
    s->logits = malloc((size_t)vocab * sizeof *s->logits);
    if (!s->tokens || !s->logits) return false;
    bench_fill_tokens(s->tokens, n, vocab, 1);
    return true;
}

static void release(bench_state *s)
{
    dsmoe_engine_free(s->engine);
    lora_close(s->lora);
    dsmoe_model_free(s->model);
    bench_probe_free(&s->probe);
    free(s->logits);
    free(s->tokens);
}

/* ---- timing -------------------------------------------------------------------------------- */

static double attention_seconds(const bench_state *s)
{
    return dsmoe_engine_get_info(s->engine).attention_seconds;
}

static dsmoe_status time_prefill(bench_state *s, double *seconds, share_of_time *share,
                                 dsmoe_error *error)
{
    const bench_options *o = s->options;
    dsmoe_status status = dsmoe_sequence_rewind(s->sequence, o->n_depth, error);
    if (status != DSMOE_OK) return status;
    double start = cli_seconds(), before = attention_seconds(s);
    status =
        dsmoe_sequence_append(s->sequence, s->tokens + o->n_depth, o->n_prompt, s->logits, error);
    *seconds = cli_seconds() - start;
    share->all += *seconds;
    share->attention += attention_seconds(s) - before;
    return status;
}

/* Reads the n_depth tokens before those that are timed. */
static dsmoe_status fill_depth(bench_state *s, dsmoe_error *error)
{
    const int64_t n = s->options->n_depth, most = s->options->n_batch;
    progress bar = progress_start("reading", "tokens");
    dsmoe_status status = DSMOE_OK;
    for (int64_t at = 0, piece; at < n && status == DSMOE_OK; at += piece) {
        piece = n - at < most ? n - at : most;
        status = dsmoe_sequence_append(s->sequence, s->tokens + at, piece, NULL, error);
        progress_update(&bar, (double)(at + piece), (double)n);
    }
    progress_finish(&bar);
    return status;
}

/* Decodes tokens from number `first` on, for the time of a window or to the last one; *count is their
 * number. */
static dsmoe_status time_decode(bench_state *s, int64_t first, int64_t *count, double *seconds,
                                share_of_time *share, dsmoe_error *error)
{
    const int32_t *tokens = s->tokens + s->options->n_depth + s->options->n_prompt + first;
    int64_t most = s->options->n_gen - first;
    dsmoe_status status = DSMOE_OK;
    double start = cli_seconds(), before = attention_seconds(s);
    *seconds = 0;
    for (*count = 0; *count < most && *seconds < decode_window && status == DSMOE_OK; ++*count) {
        status = dsmoe_sequence_append(s->sequence, &tokens[*count], 1, s->logits, error);
        *seconds = cli_seconds() - start;
    }
    share->all += *seconds;
    share->attention += attention_seconds(s) - before;
    return status;
}

/* Runs before the probe's memory is allocated, so that the peak is the model's. */
static dsmoe_status warm_up(bench_state *s, bench_result *r, dsmoe_error *error)
{
    share_of_time unused = {0};
    double seconds;
    dsmoe_status status = fill_depth(s, error);
    if (status == DSMOE_OK) status = time_prefill(s, &r->first_prefill_s, &unused, error);
    for (int64_t at = 0, n = 0; at < s->options->n_gen && status == DSMOE_OK; at += n)
        status = time_decode(s, at, &n, &seconds, &unused, error);
    r->peak_rss = cli_peak_rss();
    r->prefill_s = r->token_s = INFINITY;
    return status;
}

static dsmoe_status measure_limits(bench_state *s, bench_result *r, dsmoe_machine *now,
                                   dsmoe_error *error)
{
    *now = (dsmoe_machine){0};
    dsmoe_status status = bench_probe_measure(&s->probe, decode_window, now, error);
    r->machine.fma_gflops = fmax(r->machine.fma_gflops, now->fma_gflops);
    r->machine.read_gbs = fmax(r->machine.read_gbs, now->read_gbs);
    return status;
}

static void add_share(shares *s, double reached, double before, double after)
{
    if (s->n < MAX_SHARES) s->at[s->n++] = 2 * reached / (before + after);
}

/* Bytes of the keys and values of one position. */
static double cache_bytes(const bench_state *s)
{
    const int64_t n = 4096; /* takes the difference of two sizes, as caches are made of pages */
    dsmoe_engine_options options = {.n_ctx = n, .n_threads = 1, .kv_type = s->kv_type};
    size_t small = dsmoe_engine_memory_size(s->model, &options).kv_cache;
    options.n_ctx = 2 * n;
    size_t large = dsmoe_engine_memory_size(s->model, &options).kv_cache;
    return (double)(large - small) / (double)n;
}

/* Bytes that a token reads if n_before tokens are before it. */
static double bytes_read(const bench_state *s, double n_before)
{
    return (double)dsmoe_model_bytes_per_token(s->model) + n_before * cache_bytes(s);
}

/* Alternates between limits and case, so that both run under the same other load. */
static dsmoe_status run_round(bench_state *s, bench_result *r, dsmoe_error *error)
{
    const bench_options *o = s->options;
    double seconds;
    dsmoe_machine before, after;
    dsmoe_status status = measure_limits(s, r, &before, error);
    if (status == DSMOE_OK) status = time_prefill(s, &seconds, &r->prefill, error);
    if (status == DSMOE_OK) status = measure_limits(s, r, &after, error);
    if (status != DSMOE_OK) return status;
    r->prefill_s = fmin(r->prefill_s, seconds);
    for (int64_t at = 0, n = 0; at < o->n_gen; at += n) {
        before = after;
        status = time_decode(s, at, &n, &seconds, &r->decode, error);
        if (status == DSMOE_OK) status = measure_limits(s, r, &after, error);
        if (status != DSMOE_OK) return status;
        r->token_s = fmin(r->token_s, seconds / (double)n);
        double bytes = bytes_read(s, (double)(o->n_depth + o->n_prompt + at) + 0.5 * (double)n);
        add_share(&r->decode_shares, bytes * (double)n / seconds * 1e-9, before.read_gbs,
                  after.read_gbs);
    }
    r->n_rounds++;
    return DSMOE_OK;
}

static dsmoe_status run_rounds(bench_state *s, bench_result *r, dsmoe_error *error)
{
    double start = cli_seconds(), elapsed = 0;
    double tokens = (double)(s->options->n_prompt + s->options->n_gen); /* of a round */
    progress bar = progress_start("measuring", "tokens");
    dsmoe_status status = DSMOE_OK;
    while (status == DSMOE_OK && r->n_rounds < MAX_ROUNDS &&
           (r->n_rounds < MIN_ROUNDS || elapsed < s->options->seconds)) {
        status = run_round(s, r, error);
        elapsed = cli_seconds() - start;
        double expected = fmax(s->options->seconds * r->n_rounds / elapsed, MIN_ROUNDS);
        progress_update(&bar, tokens * r->n_rounds, tokens * expected);
    }
    progress_finish(&bar);
    return status;
}

/* ---- results ------------------------------------------------------------------------------- */

/* A third of the FLOPs of training, which is forward and backward. Tokens see the n_before tokens and half of
 * the square, and only the last one goes through the head. */
static double prefill_flops(const dsmoe_config *c, int64_t n_before, int64_t n_tokens)
{
    dsmoe_model_plan plan;
    if (dsmoe_model_plan_make(c, n_tokens, &plan, NULL) != DSMOE_OK) return 0;
    double head = 2 * (double)c->hidden_size * (double)c->vocab_size;
    double half_square = plan.attention_flops / 6;
    return plan.matmul_flops / 3 + half_square * (1 + 2 * (double)n_before / (double)n_tokens) -
           head * (double)(n_tokens - 1);
}

/* The numbers that are shown. */
typedef struct bench_summary {
    double prefill_tps, decode_tps, bytes_per_token, weight_bytes, prefill_flops;
    double prefill_gflops, decode_gbs; /* what the model reaches */
    double prefill_fma_share, decode_bandwidth_share;
    double prefill_attention, decode_attention; /* shares of the time */
} bench_summary;

static bench_summary summarise(const bench_state *s, bench_result *r)
{
    const bench_options *o = s->options;
    bench_summary sum = {
        .prefill_tps = (double)o->n_prompt / r->prefill_s,
        .decode_tps = 1 / r->token_s,
        .bytes_per_token =
            bytes_read(s, (double)(o->n_depth + o->n_prompt) + 0.5 * (double)o->n_gen),
        .prefill_flops = prefill_flops(dsmoe_model_config(s->model), o->n_depth, o->n_prompt),
        .prefill_attention = r->prefill.attention / r->prefill.all,
        .decode_attention = r->decode.attention / r->decode.all,
    };
    for (size_t i = 0; i < dsmoe_model_tensor_count(s->model); i++)
        sum.weight_bytes += (double)dsmoe_model_tensor(s->model, i).size;
    sum.prefill_gflops = sum.prefill_flops / r->prefill_s * 1e-9;
    sum.decode_gbs = sum.bytes_per_token * sum.decode_tps * 1e-9;
    sum.prefill_fma_share = sum.prefill_gflops / r->machine.fma_gflops;
    sum.decode_bandwidth_share = bench_median(r->decode_shares.at, r->decode_shares.n);
    return sum;
}

static void print_text(const bench_state *s, bench_result *r)
{
    const bench_options *o = s->options;
    bench_summary sum = summarise(s, r);
    dsmoe_tensor_info first = dsmoe_model_tensor(s->model, 0);
    char size[CLI_BYTES], token[CLI_BYTES], cache[CLI_BYTES], work[CLI_BYTES], peak[CLI_BYTES],
        copied[CLI_BYTES];
    printf("%s: %s of weights (%s); a token reads %s of weights, keys and values\n"
           "%d threads, %s kernels\n",
           o->path, cli_format_bytes(sum.weight_bytes, size), dsmoe_dtype_name(first.dtype),
           cli_format_bytes(sum.bytes_per_token, token), (int)o->n_threads, dsmoe_kernels_name());
    printf("ready after %.3f s, first prompt %.3f s", r->open_s + r->engine_s, r->first_prefill_s);
    if (o->n_depth > 0) printf("; all after %lld tokens", (long long)o->n_depth);
    printf("\n\n");
    printf("         tokens   ms/token   tokens/s   reached            share of the limit     "
           "attention\n");
    printf("prompt %8lld %10.3f %10.2f %9.1f GFLOP/s  %5.0f%% of multiply-adds  %5.1f%%\n",
           (long long)o->n_prompt, 1e3 * r->prefill_s / (double)o->n_prompt, sum.prefill_tps,
           sum.prefill_gflops, 100 * sum.prefill_fma_share, 100 * sum.prefill_attention);
    printf("decode %8lld %10.3f %10.2f %9.1f GB/s     %5.0f%% of reading        %5.1f%%\n",
           (long long)o->n_gen, 1e3 * r->token_s, sum.decode_tps, sum.decode_gbs,
           100 * sum.decode_bandwidth_share, 100 * sum.decode_attention);
    printf(
        "\nthis machine, best of the same %d rounds: %.1f GFLOP/s of multiply-adds, %.1f GB/s of "
        "reading\n",
        r->n_rounds, r->machine.fma_gflops, r->machine.read_gbs);
    cli_format_bytes((double)dsmoe_model_memory_size(s->model).copied, copied);
    printf("memory: KV cache %s (%s), workspace %s, copies of weights %s, peak %s with the weights "
           "that "
           "were read\n",
           cli_format_bytes((double)s->memory.kv_cache, cache), dsmoe_dtype_name(s->kv_type),
           cli_format_bytes((double)s->memory.workspace, work), copied,
           cli_format_bytes((double)r->peak_rss, peak));
    if (r->lora.n_pairs > 0) bench_lora_print(&r->lora);
    if (o->sequences.n_cases > 0) bench_sequences_print(&o->sequences, &r->sequences);
}

static void print_json(const bench_state *s, bench_result *r)
{
    const bench_options *o = s->options;
    bench_summary sum = summarise(s, r);
    printf("{\"model\":");
    json_write_string(stdout, o->path);
    printf(",\"kernels\":\"%s\",\"threads\":%d,\"n_depth\":%lld,\"n_prompt\":%lld,\"n_gen\":%lld,"
           "\"batch_size\":%lld,\"rounds\":%d,\n",
           dsmoe_kernels_name(), (int)o->n_threads, (long long)o->n_depth, (long long)o->n_prompt,
           (long long)o->n_gen, (long long)o->n_batch, r->n_rounds);
    printf("\"weight_bytes\":%.0f,\"bytes_per_token\":%.0f,\"prefill_flops\":%.0f,"
           "\"open_seconds\":%.6f,\"engine_seconds\":%.6f,\"ready_seconds\":%.6f,"
           "\"first_prefill_seconds\":%.6f,\n",
           sum.weight_bytes, sum.bytes_per_token, sum.prefill_flops, r->open_s, r->engine_s,
           r->open_s + r->engine_s, r->first_prefill_s);
    printf("\"prefill_seconds\":%.6f,\"decode_seconds_per_token\":%.6f,\"prefill_tps\":%.4f,"
           "\"decode_tps\":%.4f,\"prefill_gflops\":%.3f,\"decode_gbs\":%.4f,"
           "\"fma_gflops\":%.2f,\"read_gbs\":%.3f,\n",
           r->prefill_s, r->token_s, sum.prefill_tps, sum.decode_tps, sum.prefill_gflops,
           sum.decode_gbs, r->machine.fma_gflops, r->machine.read_gbs);
    printf("\"prefill_attention_share\":%.4f,\"decode_attention_share\":%.4f,\n",
           sum.prefill_attention, sum.decode_attention);
    printf("\"prefill_fma_share\":%.4f,\"decode_bandwidth_share\":%.4f,\"kv_type\":\"%s\","
           "\"kv_cache_bytes\":%zu,\"workspace_bytes\":%zu,\"copied_weight_bytes\":%zu,"
           "\"peak_rss_bytes\":%lld",
           sum.prefill_fma_share, sum.decode_bandwidth_share, dsmoe_dtype_name(s->kv_type),
           s->memory.kv_cache, s->memory.workspace, dsmoe_model_memory_size(s->model).copied,
           (long long)r->peak_rss);
    if (r->lora.n_pairs > 0) {
        printf(",\n");
        bench_lora_print_json(&r->lora);
    }
    if (o->sequences.n_cases > 0) {
        printf(",\n");
        bench_sequences_print_json(&o->sequences, &r->sequences);
    }
    printf("}\n");
}

/* ---- the command --------------------------------------------------------------------------- */

/* Takes the list of --sequences, and the other options that apply to it. */
static int parse_sequences(bench_options *o, const char *list, dsmoe_dtype kv_type)
{
    bench_sequences_options *s = &o->sequences;
    s->n_prompt = o->n_prompt;
    s->n_batch = o->n_batch;
    s->n_threads = (int)o->n_threads;
    s->kv_type = kv_type;
    s->same_bits = o->same_bits;
    s->seconds = o->seconds;
    s->lora = &o->lora;
    if (!list) return CLI_OK;
    s->n_cases = cli_parse_list(list, 1, BENCH_MAX_SEQUENCES, s->n, BENCH_MAX_CASES);
    if (s->n_cases > 0) return CLI_OK;
    return cli_usage(
        command, "--sequences takes at most %d numbers from 1 to %d, separated by commas, not '%s'",
        BENCH_MAX_CASES, BENCH_MAX_SEQUENCES, list);
}

static dsmoe_status run_sequences(bench_state *s, bench_result *r, dsmoe_error *error)
{
    const bench_sequences_options *o = &s->options->sequences;
    if (o->n_cases == 0) return DSMOE_OK;
    return bench_sequences_run(s->model, o, &s->probe, &r->sequences, error);
}

static dsmoe_status run_lora(bench_state *s, bench_result *r, dsmoe_error *error)
{
    const bench_options *o = s->options;
    const bench_lora_options options = {.n_threads = (int)o->n_threads,
                                        .kv_type = s->kv_type,
                                        .same_bits = o->same_bits,
                                        .seconds = o->seconds,
                                        .lora = s->lora};
    return s->lora->n > 0 ? bench_lora_run(s->model, &options, &r->lora, error) : DSMOE_OK;
}

int bench_model(int argc, char **argv)
{
    const char *sequences = NULL;
    bench_options o = {.n_prompt = 512,
                       .n_gen = 32,
                       .n_batch = 512,
                       .n_threads = dsmoe_machine_threads(),
                       .seconds = 20};
    const int most = 1 << 24;
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &o.path, 0, 0},
        {"--n-prompt", "-p", OPTION_INTEGER, &o.n_prompt, 1, most},
        {"--n-gen", "-n", OPTION_INTEGER, &o.n_gen, 1, most},
        {"--n-depth", "-d", OPTION_INTEGER, &o.n_depth, 0, most},
        {"--batch-size", "-b", OPTION_INTEGER, &o.n_batch, 1, CLI_MAX_BATCH},
        {"--threads", "-t", OPTION_INTEGER, &o.n_threads, 1, CLI_MAX_THREADS},
        {"--kv-type", NULL, OPTION_NAME, &o.kv_type, 0, 0},
        {"--no-repack", NULL, OPTION_FLAG, &o.no_repack, 0, 0},
        lora_row(&o.lora),
        {"--same-bits", NULL, OPTION_FLAG, &o.same_bits, 0, 0},
        {"--sequences", NULL, OPTION_TEXT, &sequences, 0, 0},
        {"--seconds", NULL, OPTION_NUMBER, &o.seconds, 0, 86400},
        {"--json", NULL, OPTION_FLAG, &o.json, 0, 0},
    };
    int code = options_parse(command, help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (code >= 0) return code;
    if (!o.path) return cli_usage(command, CLI_NO_MODEL);

    bench_state s = {.options = &o, .lora = &o.lora, .kv_type = DSMOE_F16};
    model_path found;
    code = kv_type_parse(command, o.kv_type, &s.kv_type);
    if (code == CLI_OK) code = parse_sequences(&o, sequences, s.kv_type);
    if (code == CLI_OK) code = model_path_find(command, &o.path, &found);
    if (code != CLI_OK) return code;
    bench_result r = {0};
    code = open_model(&s, &r);
    if (code != CLI_OK) {
        release(&s);
        return code;
    }
    dsmoe_error error = {0};
    dsmoe_status status = make_ready(&s, &r, &error);
    bool enough = status != DSMOE_OK || make_tokens(&s);
    if (status == DSMOE_OK && enough) status = warm_up(&s, &r, &error);
    if (status == DSMOE_OK && enough) enough = bench_probe_create(&s.probe, (int)o.n_threads);
    if (status == DSMOE_OK && enough) status = run_rounds(&s, &r, &error);
    if (status == DSMOE_OK && enough) status = run_lora(&s, &r, &error);
    if (status == DSMOE_OK && enough) status = run_sequences(&s, &r, &error);
    if (status == DSMOE_OK && enough) (o.json ? print_json : print_text)(&s, &r);
    release(&s);
    if (!enough) return cli_failure(command, "not enough memory");
    return status == DSMOE_OK ? CLI_OK : kv_type_error(command, NULL, &error);
}

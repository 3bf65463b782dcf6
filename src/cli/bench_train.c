/* bench_train.c - `dsmoe bench train`: one optimizer step of a language model beside what the machine
 * can do at best. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_sizes.h"
#include "cli/options.h"
#include "cli/progress.h"

static const char command[] = "bench train";

static const char help[] =
    "usage: dsmoe bench train [options]\n"
    "\n"
    "Times whole training steps (forward, backward, clipping, AdamW) of a fresh DeepSeekMoE\n"
    "language model on random tokens, in turn with the machine's own multiply-add peak on the\n"
    "same threads. Shown is the best step against the best peak; parts are those of that step.\n"
    "\n"
    "      --batch N     sequences of a step (8)\n"
    "      --seq N       tokens of a sequence (256)\n"
    "      --recompute   keep only the layers' inputs and run them again in backward\n"
    "  -t, --threads N   threads (all processors)\n"
    "      --seconds X   how long to go on (15, and at least three steps)\n"
    "      --json        one JSON object on the output\n"
    "  -h, --help        this text\n"
    "\n"
    "the model (6 layers of width 256, 4 heads, 1 + 63 experts of 172, top-7):\n" MODEL_SIZES_HELP
    "      --vocab-size N         vocab_size (8192; --vocab is the same)\n"
    "\n"
    "FLOPs of a step are 6 for each token and weight that it is multiplied with (projections,\n"
    "router, chosen and shared experts, head) and 6·hidden_size a layer for each token and each\n"
    "one it sees, which is half of the square; what is computed twice counts once.\n"
    "\n"
    "example:\n"
    "  dsmoe bench train --hidden 256 --layers 6 --batch 8 --seq 256 -t 2\n";

enum { MIN_STEPS = 3, MAX_STEPS = 1000 };

typedef struct bench_options {
    dsmoe_model_sizes sizes;
    int64_t vocab_size, batch, seq, n_threads;
    double seconds;
    bool recompute, json;
} bench_options;

typedef struct bench_state {
    const bench_options *options;
    dsmoe_config config;
    dsmoe_model_plan plan;
    dsmoe_trainer_memory memory;
    dsmoe_trainer *trainer;
    int32_t *tokens, *targets;
    bench_probe probe;
} bench_state;

typedef struct bench_result {
    double step_s;             /* the best */
    dsmoe_trainer_times times; /* of that step */
    dsmoe_machine machine;     /* the best */
    double loss;
    int n_steps;
    int64_t peak_rss;
} bench_result;

/* The preset tiny, wider and deeper, with the sizes that were given. -1 or an exit code. */
static int make_config(bench_state *s)
{
    dsmoe_config *c = &s->config;
    dsmoe_error error;
    if (dsmoe_config_preset("tiny", c, &error) != DSMOE_OK)
        return cli_failure(command, "%s", error.message);
    c->hidden_size = 256;
    c->num_hidden_layers = 6;
    c->moe_intermediate_size = 172;
    c->vocab_size = s->options->vocab_size;
    return model_sizes_apply(command, &s->options->sizes, c);
}

static dsmoe_status make_ready(bench_state *s, dsmoe_error *error)
{
    const bench_options *o = s->options;
    const dsmoe_config *c = &s->config;
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = o->batch;
    options.sequence_length = o->seq;
    options.recompute = o->recompute;
    options.n_threads = (int)o->n_threads;
    dsmoe_status status = dsmoe_model_plan_make(c, o->seq, &s->plan, error);
    if (status == DSMOE_OK) status = dsmoe_trainer_create(c, &options, &s->trainer, error);
    if (status != DSMOE_OK) return status;
    s->memory = dsmoe_trainer_memory_size(c, &options);
    dsmoe_trainer_init(s->trainer, 1);
    return DSMOE_OK;
}

static bool make_tokens(bench_state *s)
{
    int64_t n = s->options->batch * s->options->seq;
    uint64_t state = 1;
    s->tokens = malloc((size_t)n * sizeof *s->tokens);
    s->targets = malloc((size_t)n * sizeof *s->targets);
    if (!s->tokens || !s->targets) return false;
    for (int64_t i = 0; i < 2 * n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int32_t token = (int32_t)((state >> 33) % (uint64_t)s->options->vocab_size);
        *(i < n ? &s->tokens[i] : &s->targets[i - n]) = token;
    }
    return true;
}

static void release(bench_state *s)
{
    dsmoe_trainer_free(s->trainer);
    bench_probe_free(&s->probe);
    free(s->tokens);
    free(s->targets);
}

static dsmoe_status run_step(bench_state *s, bench_result *r, dsmoe_error *error)
{
    dsmoe_batch_losses losses;
    dsmoe_trainer_take_times(s->trainer);
    double start = cli_seconds();
    dsmoe_status status = dsmoe_trainer_backward(s->trainer, s->tokens, s->targets, &losses, error);
    if (status == DSMOE_OK) status = dsmoe_trainer_update(s->trainer, 1e-3, NULL, error);
    double seconds = cli_seconds() - start;
    if (status != DSMOE_OK) return status;
    dsmoe_trainer_times times = dsmoe_trainer_take_times(s->trainer);
    r->loss = losses.loss;
    if (seconds >= r->step_s) return DSMOE_OK;
    r->step_s = seconds;
    r->times = times;
    return DSMOE_OK;
}

static dsmoe_status run_steps(bench_state *s, bench_result *r, dsmoe_error *error)
{
    double start = cli_seconds(), elapsed = 0;
    double tokens = (double)(s->options->batch * s->options->seq);
    progress bar = progress_start("measuring", "tokens");
    dsmoe_status status = DSMOE_OK;
    while (status == DSMOE_OK && r->n_steps < MAX_STEPS &&
           (r->n_steps < MIN_STEPS || elapsed < s->options->seconds)) {
        status = bench_probe_measure(&s->probe, bench_window, &r->machine, error);
        if (status == DSMOE_OK) status = run_step(s, r, error);
        r->n_steps++;
        elapsed = cli_seconds() - start;
        double expected = fmax(s->options->seconds * r->n_steps / elapsed, MIN_STEPS);
        progress_update(&bar, tokens * r->n_steps, tokens * expected);
    }
    progress_finish(&bar);
    return status;
}

/* Attention counts the half of the square that is there; a tied head would count with the plan's
 * embedding, but the models here have one of their own. */
static double step_flops(const bench_state *s)
{
    return (s->plan.matmul_flops + s->plan.attention_flops / 2) * (double)s->options->batch;
}

static void print_part(const char *name, double seconds, double step)
{
    printf("  %-10s %9.1f ms  %5.1f%%\n", name, 1e3 * seconds, 100 * seconds / step);
}

static void print_text(const bench_state *s, const bench_result *r)
{
    const bench_options *o = s->options;
    const dsmoe_config *c = &s->config;
    char stated[CLI_BYTES], peak[CLI_BYTES], kept[CLI_BYTES];
    const dsmoe_trainer_memory *m = &s->memory;
    double tokens = (double)(o->batch * o->seq), gflops = step_flops(s) / r->step_s * 1e-9;
    double all = (double)m->weights + (double)m->gradients + (double)m->moments +
                 (double)m->activations + (double)m->workspace;
    printf(
        "hidden %lld, %lld layers, %lld heads, %lld + %lld experts of %lld, top-%lld, vocabulary "
        "%lld: %.1fM parameters, %.1fM active\n",
        (long long)c->hidden_size, (long long)c->num_hidden_layers,
        (long long)c->num_attention_heads, (long long)c->n_shared_experts,
        (long long)c->n_routed_experts, (long long)c->moe_intermediate_size,
        (long long)c->num_experts_per_tok, (long long)c->vocab_size, 1e-6 * (double)s->plan.total,
        1e-6 * (double)s->plan.active);
    printf("batch %lld x %lld, %d threads, %s kernels\n\n", (long long)o->batch, (long long)o->seq,
           (int)o->n_threads, dsmoe_kernels_name());
    printf("step        %9.1f ms  %.0f tokens/s  %.1f GFLOP/s  %.0f%% of multiply-adds\n",
           1e3 * r->step_s, tokens / r->step_s, gflops, 100 * gflops / r->machine.fma_gflops);
    print_part("attention", r->times.attention, r->step_s);
    print_part("experts", r->times.experts, r->step_s);
    print_part("router", r->times.router, r->step_s);
    print_part("head", r->times.head, r->step_s);
    print_part("optimizer", r->times.optimizer, r->step_s);
    print_part("rest", r->times.rest, r->step_s);
    printf("\nthis machine, best of the same %d steps: %.1f GFLOP/s of multiply-adds, %.1f GB/s of "
           "reading\n",
           r->n_steps, r->machine.fma_gflops, r->machine.read_gbs);
    printf("memory: %s stated (%s of activations), peak %s\n", cli_format_bytes(all, stated),
           cli_format_bytes((double)m->activations, kept),
           cli_format_bytes((double)r->peak_rss, peak));
}

static void print_json(const bench_state *s, const bench_result *r)
{
    const bench_options *o = s->options;
    const dsmoe_config *c = &s->config;
    const dsmoe_trainer_memory *m = &s->memory;
    double gflops = step_flops(s) / r->step_s * 1e-9;
    printf("{\"hidden\":%lld,\"layers\":%lld,\"heads\":%lld,\"moe\":%lld,\"routed\":%lld,"
           "\"shared\":%lld,\"k\":%lld,\"vocab\":%lld,\"batch\":%lld,\"seq\":%lld,\"threads\":%d,"
           "\"recompute\":%s,\"kernels\":\"%s\",\n",
           (long long)c->hidden_size, (long long)c->num_hidden_layers,
           (long long)c->num_attention_heads, (long long)c->moe_intermediate_size,
           (long long)c->n_routed_experts, (long long)c->n_shared_experts,
           (long long)c->num_experts_per_tok, (long long)c->vocab_size, (long long)o->batch,
           (long long)o->seq, (int)o->n_threads, o->recompute ? "true" : "false",
           dsmoe_kernels_name());
    printf("\"parameters\":%lld,\"active_parameters\":%lld,\"step_flops\":%.0f,\"steps\":%d,"
           "\"loss\":%.6f,\n",
           (long long)s->plan.total, (long long)s->plan.active, step_flops(s), r->n_steps, r->loss);
    printf("\"step_seconds\":%.6f,\"tokens_per_s\":%.3f,\"gflops\":%.3f,\"fma_gflops\":%.2f,"
           "\"fma_share\":%.4f,\"read_gbs\":%.3f,\n",
           r->step_s, (double)(o->batch * o->seq) / r->step_s, gflops, r->machine.fma_gflops,
           gflops / r->machine.fma_gflops, r->machine.read_gbs);
    printf("\"seconds\":{\"attention\":%.6f,\"experts\":%.6f,\"router\":%.6f,\"head\":%.6f,"
           "\"optimizer\":%.6f,\"rest\":%.6f},\n",
           r->times.attention, r->times.experts, r->times.router, r->times.head, r->times.optimizer,
           r->times.rest);
    printf("\"memory\":{\"weights\":%zu,\"gradients\":%zu,\"moments\":%zu,\"activations\":%zu,"
           "\"workspace\":%zu},\"peak_rss_bytes\":%lld}\n",
           m->weights, m->gradients, m->moments, m->activations, m->workspace,
           (long long)r->peak_rss);
}

static int parse(bench_options *o, int argc, char **argv)
{
    *o = (bench_options){.sizes = dsmoe_model_sizes_default(),
                         .vocab_size = 8192,
                         .batch = 8,
                         .seq = 256,
                         .n_threads = dsmoe_machine_threads(),
                         .seconds = 15};
    const int most = 1 << 24;
    const option_row own[] = {
        {"--vocab-size", NULL, OPTION_INTEGER, &o->vocab_size, 1, most},
        {"--vocab", NULL, OPTION_INTEGER, &o->vocab_size, 1, most},
        {"--batch", NULL, OPTION_INTEGER, &o->batch, 1, most},
        {"--seq", NULL, OPTION_INTEGER, &o->seq, 1, most},
        {"--recompute", NULL, OPTION_FLAG, &o->recompute, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &o->n_threads, 1, CLI_MAX_THREADS},
        {"--seconds", NULL, OPTION_NUMBER, &o->seconds, 0, 86400},
        {"--json", NULL, OPTION_FLAG, &o->json, 0, 0},
    };
    enum { N_OWN = sizeof own / sizeof *own, N_ROWS = N_OWN + MODEL_SIZES_ROWS };
    option_row rows[N_ROWS];
    memcpy(rows, own, sizeof own);
    model_sizes_rows(&o->sizes, rows + N_OWN);
    return options_parse(command, help, rows, N_ROWS, argc, argv, NULL);
}

int bench_train(int argc, char **argv)
{
    bench_options o;
    int code = parse(&o, argc, argv);
    if (code >= 0) return code;

    bench_state s = {.options = &o};
    bench_result r = {.step_s = INFINITY};
    dsmoe_error error = {0};
    code = make_config(&s);
    if (code >= 0) return code;
    dsmoe_status status = make_ready(&s, &error);
    bool enough = status != DSMOE_OK || make_tokens(&s);
    if (status == DSMOE_OK && enough) {
        status = run_step(&s, &r, &error); /* warms up; its memory is the peak */
        r = (bench_result){.step_s = INFINITY, .peak_rss = cli_peak_rss()};
    }
    if (status == DSMOE_OK && enough) enough = bench_probe_create(&s.probe, (int)o.n_threads);
    if (status == DSMOE_OK && enough) status = run_steps(&s, &r, &error);
    if (status == DSMOE_OK && enough) (o.json ? print_json : print_text)(&s, &r);
    release(&s);
    if (!enough) return cli_failure(command, "not enough memory");
    return status == DSMOE_OK ? CLI_OK : bench_shape_error(command, &error);
}

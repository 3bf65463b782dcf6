/* bench_train.c - `dsmoe bench train`: one optimizer step of a language model, next to the best that the
 * machine can do. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_sizes.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/train_speed.h"

static const char command[] = "bench train";

static const char help[] =
    "usage: dsmoe bench train [options]\n"
    "\n"
    "Times whole training steps (forward, backward, clipping, AdamW) of a fresh DeepSeekMoE\n"
    "language model on random tokens. Steps alternate with measurements of the machine's\n"
    "multiply-add peak on the same threads. Shows the best step against the best peak, and the parts\n"
    "of that step. Under mpirun several ranks train together; parts are then means over the ranks.\n"
    "\n"
    "      --batch N     sequences per batch (8)\n"
    "      --seq N       tokens per sequence (256)\n"
    "      --accumulate N  batches per step (one for each rank)\n"
    "      --parallel WAY  what the ranks started by mpirun divide: data (default) or experts\n"
    "      --recompute   keep only the layers' inputs and run them again in backward\n"
    "  -t, --threads N   threads (all processors)\n"
    "      --seconds X   how long to measure (15, and at least three steps)\n"
    "      --json        print one JSON object\n"
    "  -h, --help        this text\n"
    "\n"
    "the model (6 layers of width 256, 4 heads, 1 + 63 experts of 172, top-7):\n"
    "      --preset NAME          a preset of dsmoe train instead\n" MODEL_SIZES_HELP
    "      --vocab-size N         vocab_size (8192; --vocab is the same)\n"
    "\n"
    "FLOPs of a step are 6 for each token and weight that it is multiplied with (projections,\n"
    "router, chosen and shared experts, head) and 6·hidden_size per layer (with latent attention\n"
    "3·heads times the widths of a key and a value) for each token and each one it sees, which is\n"
    "half of the square; what is computed twice counts once.\n"
    "\n"
    "example:\n"
    "  dsmoe bench train --hidden 256 --layers 6 --batch 8 --seq 256 -t 2\n";

typedef struct bench_options {
    const char *preset; /* NULL: not given */
    dsmoe_model_sizes sizes;
    int64_t vocab_size, batch, seq, accumulate, n_threads; /* the last two: 0 if not given */
    const char *parallel_name;
    dsmoe_parallel parallel;
    double seconds;
    bool recompute, json;
} bench_options;

typedef struct bench_state {
    const bench_options *options;
    train_speed_case of;
    dsmoe_model_plan plan;
    double flops; /* of a step */
    int n_ranks;
} bench_state;

/* The named preset, or tiny made wider and deeper; then the given sizes. -1 or an exit code. */
static int make_config(bench_state *s)
{
    const char *preset = s->options->preset;
    dsmoe_config *c = &s->of.config;
    dsmoe_error error;
    if (preset && names_check_preset(command, preset) != CLI_OK) return CLI_USAGE;
    if (dsmoe_config_preset(preset ? preset : "tiny", c, &error) != DSMOE_OK)
        return cli_failure(command, "%s", error.message);
    if (!preset) {
        c->hidden_size = 256;
        c->num_hidden_layers = 6;
        c->moe_intermediate_size = 172;
    }
    c->vocab_size = s->options->vocab_size;
    c->bos_token_id = c->eos_token_id = -1;
    return model_sizes_apply(command, &s->options->sizes, c);
}

/* Joins the ranks and decides what each of them does. -1 or an exit code. */
static int make_case(bench_state *s)
{
    const bench_options *o = s->options;
    const dsmoe_peers *peers;
    dsmoe_error error;
    int exit_code = ranks_open(command, RANKS_PATIENCE, &peers);
    if (exit_code != CLI_OK) return exit_code;
    int n_threads = ranks_threads() ? ranks_threads() : dsmoe_machine_threads();
    dsmoe_trainer_options *t = &s->of.options;
    *t = dsmoe_trainer_options_default();
    t->n_sequences = o->batch;
    t->sequence_length = o->seq;
    t->recompute = o->recompute;
    t->n_threads = o->n_threads ? (int)o->n_threads : n_threads;
    t->peers = peers;
    t->parallel = o->parallel;
    s->n_ranks = peers ? peers->size : 1;
    s->of.n_units = o->accumulate ? o->accumulate : s->n_ranks;
    s->of.seconds = o->seconds;
    if (dsmoe_model_plan_make(&s->of.config, o->seq, &s->plan, &error) != DSMOE_OK ||
        train_speed_flops(&s->of.config, t, &s->flops, &error) != DSMOE_OK)
        return bench_shape_error(command, &error);
    s->flops *= (double)s->of.n_units;
    return -1;
}

static double step_tokens(const bench_state *s)
{
    return (double)(s->of.n_units * s->options->batch * s->options->seq);
}

static void print_part(const char *name, double seconds, double step)
{
    printf("  %-10s %9.1f ms  %5.1f%%\n", name, 1e3 * seconds, 100 * seconds / step);
}

static void print_text(const bench_state *s, const train_speed *r)
{
    const bench_options *o = s->options;
    const dsmoe_config *c = &s->of.config;
    char stated[CLI_BYTES], peak[CLI_BYTES], kept[CLI_BYTES];
    const dsmoe_trainer_memory *m = &r->memory;
    double gflops = s->flops / r->step_s * 1e-9;
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
    if (s->n_ranks > 1)
        printf("%d ranks that divide %s, %lld batches, ", s->n_ranks,
               o->parallel == DSMOE_PARALLEL_EXPERTS ? "experts" : "data",
               (long long)s->of.n_units);
    printf("batch %lld x %lld, %d threads, %s kernels\n\n", (long long)o->batch, (long long)o->seq,
           s->of.options.n_threads, dsmoe_kernels_name());
    printf("step        %9.1f ms  %.0f tokens/s  %.1f GFLOP/s  %.0f%% of multiply-adds\n",
           1e3 * r->step_s, step_tokens(s) / r->step_s, gflops,
           100 * gflops / r->machine.fma_gflops);
    print_part("attention", r->times.attention, r->step_s);
    print_part("experts", r->times.experts, r->step_s);
    print_part("router", r->times.router, r->step_s);
    print_part("head", r->times.head, r->step_s);
    print_part("optimizer", r->times.optimizer, r->step_s);
    print_part("rest", r->times.rest, r->step_s);
    if (s->n_ranks > 1) {
        print_part("sending", r->times.sending, r->step_s);
        print_part("waiting", r->times.waiting, r->step_s);
    }
    printf("\n%s, best of the same %d steps: %.1f GFLOP/s of multiply-adds, %.1f GB/s of "
           "reading\n",
           s->n_ranks > 1 ? "all ranks" : "this machine", r->n_steps, r->machine.fma_gflops,
           r->machine.read_gbs);
    printf("memory%s: %s stated (%s of activations), peak %s\n", s->n_ranks > 1 ? " of a rank" : "",
           cli_format_bytes(all, stated), cli_format_bytes((double)m->activations, kept),
           cli_format_bytes((double)r->peak_rss, peak));
}

static void print_json(const bench_state *s, const train_speed *r)
{
    const bench_options *o = s->options;
    const dsmoe_config *c = &s->of.config;
    const dsmoe_trainer_memory *m = &r->memory;
    double gflops = s->flops / r->step_s * 1e-9;
    printf("{\"hidden\":%lld,\"layers\":%lld,\"heads\":%lld,\"moe\":%lld,\"routed\":%lld,"
           "\"shared\":%lld,\"k\":%lld,\"vocab\":%lld,\"batch\":%lld,\"seq\":%lld,"
           "\"ranks\":%d,\"parallel\":\"%s\",\"accumulate\":%lld,\"threads\":%d,"
           "\"recompute\":%s,\"kernels\":\"%s\",\n",
           (long long)c->hidden_size, (long long)c->num_hidden_layers,
           (long long)c->num_attention_heads, (long long)c->moe_intermediate_size,
           (long long)c->n_routed_experts, (long long)c->n_shared_experts,
           (long long)c->num_experts_per_tok, (long long)c->vocab_size, (long long)o->batch,
           (long long)o->seq, s->n_ranks,
           o->parallel == DSMOE_PARALLEL_EXPERTS ? "experts" : "data", (long long)s->of.n_units,
           s->of.options.n_threads, o->recompute ? "true" : "false", dsmoe_kernels_name());
    printf("\"parameters\":%lld,\"active_parameters\":%lld,\"step_flops\":%.0f,\"steps\":%d,"
           "\"loss\":%.6f,\n",
           (long long)s->plan.total, (long long)s->plan.active, s->flops, r->n_steps, r->loss);
    printf("\"step_seconds\":%.6f,\"tokens_per_s\":%.3f,\"gflops\":%.3f,\"fma_gflops\":%.2f,"
           "\"fma_share\":%.4f,\"read_gbs\":%.3f,\n",
           r->step_s, step_tokens(s) / r->step_s, gflops, r->machine.fma_gflops,
           gflops / r->machine.fma_gflops, r->machine.read_gbs);
    printf("\"seconds\":{\"attention\":%.6f,\"experts\":%.6f,\"router\":%.6f,\"head\":%.6f,"
           "\"optimizer\":%.6f,\"rest\":%.6f,\"sending\":%.6f,\"waiting\":%.6f},\n",
           r->times.attention, r->times.experts, r->times.router, r->times.head, r->times.optimizer,
           r->times.rest, r->times.sending, r->times.waiting);
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
                         .seconds = 15};
    const int most = 1 << 24;
    const option_row own[] = {
        {"--preset", NULL, OPTION_NAME, &o->preset, 0, 0},
        {"--vocab-size", NULL, OPTION_INTEGER, &o->vocab_size, 1, most},
        {"--vocab", NULL, OPTION_INTEGER, &o->vocab_size, 1, most},
        {"--batch", NULL, OPTION_INTEGER, &o->batch, 1, most},
        {"--seq", NULL, OPTION_INTEGER, &o->seq, 1, most},
        {"--accumulate", NULL, OPTION_INTEGER, &o->accumulate, 1, most},
        {"--parallel", NULL, OPTION_TEXT, &o->parallel_name, 0, 0},
        {"--recompute", NULL, OPTION_FLAG, &o->recompute, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &o->n_threads, 1, CLI_MAX_THREADS},
        {"--seconds", NULL, OPTION_NUMBER, &o->seconds, 0, 86400},
        {"--json", NULL, OPTION_FLAG, &o->json, 0, 0},
    };
    enum { N_OWN = sizeof own / sizeof *own, N_ROWS = N_OWN + MODEL_SIZES_ROWS };
    option_row rows[N_ROWS];
    memcpy(rows, own, sizeof own);
    model_sizes_rows(&o->sizes, rows + N_OWN);
    int exit_code = options_parse(command, help, rows, N_ROWS, argc, argv, NULL);
    if (exit_code < 0 && names_find_parallel(command, o->parallel_name, &o->parallel) != CLI_OK)
        return CLI_USAGE;
    return exit_code;
}

int bench_train(int argc, char **argv)
{
    bench_options o;
    bench_state s = {.options = &o};
    train_speed r;
    dsmoe_error error = {0};
    int exit_code = parse(&o, argc, argv);
    if (exit_code < 0) exit_code = make_config(&s);
    if (exit_code < 0) exit_code = make_case(&s);
    if (exit_code >= 0) return exit_code;
    if (train_speed_measure(&s.of, &r, &error) != DSMOE_OK)
        return bench_shape_error(command, &error);
    (o.json ? print_json : print_text)(&s, &r);
    return CLI_OK;
}

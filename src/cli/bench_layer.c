/* bench_layer.c - `dsmoe bench layer`: the MoE layer's speed, next to the best that the machine can do. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"

static const char command[] = "bench layer";

static const char help[] =
    "usage: dsmoe bench layer [options]\n"
    "\n"
    "Times one MoE layer in float32 with random weights. Each case alternates with measurements of\n"
    "the machine's limits on the same threads: multiply-adds in registers and reading from memory.\n"
    "'roofline' is the share that the case reaches of the limit that binds it. The best of several\n"
    "rounds counts, for the limits and for the case.\n"
    "\n"
    "      --hidden N           hidden_size (default: 2048, the 16B model's layer)\n"
    "      --moe N              moe_intermediate_size (1408)\n"
    "      --routed N           n_routed_experts (64)\n"
    "      --shared N           n_shared_experts (2)\n"
    "      --k N                num_experts_per_tok (6)\n"
    "      --tokens LIST        inference cases (1,16,64,512,2048; \"\" for none)\n"
    "      --train-tokens LIST  training cases, forward and backward (512,2048)\n"
    "      --seconds X          how long to measure each case; the best round counts (10)\n"
    "  -t, --threads N          threads (all processors)\n"
    "      --json               print one JSON object\n"
    "  -h, --help               this text\n"
    "\n"
    "FLOPs are those of the experts: 2 for each weight that a token is multiplied with, three times\n"
    "that in training. Weight bytes are those of the router and of the experts that at least one token\n"
    "chose; in training they are read twice and their gradients written once.\n"
    "\n"
    "example:\n"
    "  dsmoe bench layer --tokens 1,512 --train-tokens \"\"\n";

enum { MAX_CASES = 16, MAX_SIZE = 1 << 20, MIN_ROUNDS = 3, MAX_ROUNDS = 60 };

typedef struct bench_options {
    dsmoe_layer_config config;
    int64_t infer[MAX_CASES], train[MAX_CASES];
    int n_infer, n_train;
    int64_t n_threads;
    double seconds; /* for each case */
    bool json;
} bench_options;

typedef struct bench_case {
    bool train;
    int64_t n_tokens, n_experts; /* that at least one token chose */
    double ms, router_ms;
    double flops, weight_bytes;
    dsmoe_machine machine; /* the best seen during this case */
} bench_case;

/* What all cases share. */
typedef struct bench_state {
    const bench_options *options;
    dsmoe_layer_weights *weights, *gradients;
    dsmoe_layer *layer;
    float *x, *y, *dx;
    bench_probe probe;
    int32_t *topk_idx;
    void *saved;
    size_t saved_size;
    dsmoe_workspace workspace;
} bench_state;

/* ---- preparing ----------------------------------------------------------------------------- */

static int64_t most(const int64_t *values, int n)
{
    int64_t max = 0;
    for (int i = 0; i < n; i++)
        if (values[i] > max) max = values[i];
    return max;
}

static void fill_expert(const dsmoe_expert_weights *e, int64_t n, uint32_t seed)
{
    if (!e->gate_proj) return;
    bench_fill(e->gate_proj, n, seed);
    bench_fill(e->up_proj, n, seed + 1);
    bench_fill(e->down_proj, n, seed + 2);
}

/* One random expert, copied to all: filling gigabytes at random would take longer than the runs. */
static void fill_weights(const dsmoe_layer_config *c, dsmoe_layer_weights *w)
{
    int64_t n = c->hidden_size * c->moe_intermediate_size;
    size_t size = (size_t)n * sizeof(float);
    bench_fill(w->gate, c->n_routed_experts * c->hidden_size, 1);
    fill_expert(&w->experts[0], n, 2);
    for (int64_t i = 1; i < c->n_routed_experts; i++) {
        memcpy(w->experts[i].gate_proj, w->experts[0].gate_proj, size);
        memcpy(w->experts[i].up_proj, w->experts[0].up_proj, size);
        memcpy(w->experts[i].down_proj, w->experts[0].down_proj, size);
    }
    fill_expert(&w->shared_experts, n * c->n_shared_experts, 5);
}

static dsmoe_status make_layer(bench_state *s, dsmoe_error *error)
{
    const dsmoe_layer_config *c = &s->options->config;
    dsmoe_status status = dsmoe_layer_weights_create(c, &s->weights, error);
    if (status == DSMOE_OK && s->options->n_train > 0)
        status = dsmoe_layer_weights_create(c, &s->gradients, error);
    if (status != DSMOE_OK) return status;
    fill_weights(c, s->weights);
    return dsmoe_layer_create(c, s->weights, &s->layer, error);
}

/* False if there is not enough memory. */
static bool make_buffers(bench_state *s)
{
    const bench_options *o = s->options;
    int64_t infer = most(o->infer, o->n_infer), train = most(o->train, o->n_train);
    int64_t tokens = infer > train ? infer : train;
    size_t rows = (size_t)tokens * (size_t)o->config.hidden_size;
    size_t workspace = dsmoe_layer_workspace_size(s->layer, tokens, (int)o->n_threads);
    if (train > 0) {
        size_t size = dsmoe_layer_train_workspace_size(s->layer, train, (int)o->n_threads);
        if (size > workspace) workspace = size;
        s->saved_size = dsmoe_layer_saved_size(s->layer, train);
        s->saved = dsmoe_memory_alloc(s->saved_size);
        s->dx = dsmoe_memory_alloc(rows * sizeof *s->dx);
        if (!s->saved || !s->dx) return false;
    }
    s->workspace = (dsmoe_workspace){dsmoe_memory_alloc(workspace), workspace, (int)o->n_threads};
    s->x = dsmoe_memory_alloc(rows * sizeof *s->x);
    s->y = dsmoe_memory_alloc(rows * sizeof *s->y);
    s->topk_idx = malloc((size_t)(tokens * o->config.num_experts_per_tok) * sizeof *s->topk_idx);
    bool probe = bench_probe_create(&s->probe, (int)o->n_threads);
    if (!s->workspace.memory || !s->x || !s->y || !s->topk_idx || !probe) return false;
    bench_fill(s->x, (int64_t)rows, 7);
    for (size_t i = 0; i < rows; i++) s->x[i] *= 16.0f; /* of the order of 1, as after a norm */
    return true;
}

static void release(bench_state *s)
{
    dsmoe_layer_free(s->layer);
    dsmoe_layer_weights_free(s->weights);
    dsmoe_layer_weights_free(s->gradients);
    dsmoe_memory_free(s->workspace.memory);
    free(s->topk_idx);
    bench_probe_free(&s->probe);
    dsmoe_memory_free(s->saved);
    dsmoe_memory_free(s->dx);
    dsmoe_memory_free(s->y);
    dsmoe_memory_free(s->x);
}

/* ---- timing -------------------------------------------------------------------------------- */

static dsmoe_status run_once(bench_state *s, const bench_case *c, dsmoe_error *error)
{
    if (!c->train)
        return dsmoe_layer_forward(s->layer, s->x, c->n_tokens, s->y, &s->workspace, error);
    dsmoe_status status = dsmoe_layer_forward_train(s->layer, s->x, 1, c->n_tokens, s->y, s->saved,
                                                    s->saved_size, NULL, &s->workspace, error);
    if (status != DSMOE_OK) return status;
    return dsmoe_layer_backward(s->layer, s->x, s->y, s->saved, s->dx, s->gradients, false,
                                &s->workspace, error);
}

static dsmoe_status route_once(bench_state *s, const bench_case *c, dsmoe_error *error)
{
    dsmoe_routing routing = {.topk_idx = s->topk_idx};
    return dsmoe_layer_route(s->layer, s->x, c->n_tokens, routing, &s->workspace, error);
}

/* Lowers *best_ms to the average of `run` over one window: short runs are repeated within it. */
static dsmoe_status time_best(bench_state *s, const bench_case *c, double *best_ms,
                              dsmoe_status (*run)(bench_state *, const bench_case *, dsmoe_error *),
                              dsmoe_error *error)
{
    double start = cli_seconds(), elapsed = 0.0;
    int runs = 0;
    for (; elapsed < bench_window; runs++, elapsed = cli_seconds() - start) {
        dsmoe_status status = run(s, c, error);
        if (status != DSMOE_OK) return status;
    }
    *best_ms = fmin(*best_ms, elapsed / runs * 1e3);
    return DSMOE_OK;
}

/* How many different experts the tokens chose. */
static int64_t count_experts(const bench_state *s, int64_t n_tokens)
{
    const dsmoe_layer_config *c = &s->options->config;
    bool *chosen = calloc((size_t)c->n_routed_experts, sizeof *chosen);
    int64_t count = 0;
    for (int64_t i = 0; chosen && i < n_tokens * c->num_experts_per_tok; i++) {
        count += !chosen[s->topk_idx[i]];
        chosen[s->topk_idx[i]] = true;
    }
    free(chosen);
    return count;
}

static void count_work(const bench_state *s, bench_case *c)
{
    const dsmoe_layer_config *k = &s->options->config;
    double expert = 3.0 * (double)k->hidden_size * (double)k->moe_intermediate_size;
    double active = (double)(k->num_experts_per_tok + k->n_shared_experts);
    double router = (double)k->n_routed_experts * (double)k->hidden_size;
    c->n_experts = count_experts(s, c->n_tokens);
    c->flops = 2.0 * expert * active * (double)c->n_tokens * (c->train ? 3 : 1);
    c->weight_bytes =
        4.0 * (expert * (double)(c->n_experts + k->n_shared_experts) + router) * (c->train ? 3 : 1);
}

/* Alternates between the machine's limits and the case, for about as long each, so that both run under the
 * same other load. The best of each counts. */
static dsmoe_status run_case(bench_state *s, bench_case *c, dsmoe_error *error)
{
    c->ms = c->router_ms = INFINITY;
    dsmoe_status status = time_best(s, c, &c->ms, run_once, error); /* also warms up */
    double start = cli_seconds();
    for (int round = 0; round < MAX_ROUNDS && status == DSMOE_OK; round++) {
        if (round >= MIN_ROUNDS && cli_seconds() - start > s->options->seconds) break;
        status = bench_probe_measure(&s->probe, c->ms * 1e-3, &c->machine, error);
        if (status == DSMOE_OK) status = time_best(s, c, &c->router_ms, route_once, error);
        if (status == DSMOE_OK) status = time_best(s, c, &c->ms, run_once, error);
    }
    count_work(s, c);
    return status;
}

/* ---- reporting ----------------------------------------------------------------------------- */

static double gflops(const bench_case *c) { return c->flops / c->ms * 1e-6; }
static double weight_gbs(const bench_case *c) { return c->weight_bytes / c->ms * 1e-6; }
static double fma_share(const bench_case *c) { return gflops(c) / c->machine.fma_gflops; }
static double read_share(const bench_case *c) { return weight_gbs(c) / c->machine.read_gbs; }
/* At most 1: a layer small enough for the caches can be read faster than memory. */
static double roofline(const bench_case *c) { return fmin(1.0, fmax(fma_share(c), read_share(c))); }
static const char *limit(const bench_case *c)
{
    return fma_share(c) > read_share(c) ? "FMA" : "memory";
}
static const char *mode(const bench_case *c) { return c->train ? "train" : "infer"; }

static void print_header(const bench_options *o)
{
    const dsmoe_layer_config *c = &o->config;
    printf("MoE layer, float32: hidden_size %lld, moe_intermediate_size %lld, %lld routed experts "
           "top-%lld, %lld shared\n%d threads, %s kernels\n\n",
           (long long)c->hidden_size, (long long)c->moe_intermediate_size,
           (long long)c->n_routed_experts, (long long)c->num_experts_per_tok,
           (long long)c->n_shared_experts, (int)o->n_threads, dsmoe_kernels_name());
    printf(
        "mode   tokens        ms   tokens/s   GFLOP/s  experts  weights GB/s  router ms  limit    "
        "roofline\n");
}

static void print_case(const bench_case *c)
{
    printf("%-6s %6lld %9.2f %10.0f %9.1f %8lld %13.1f %10.2f  %-7s %7.0f%%\n", mode(c),
           (long long)c->n_tokens, c->ms, (double)c->n_tokens / c->ms * 1e3, gflops(c),
           (long long)c->n_experts, weight_gbs(c), c->router_ms, limit(c), 100 * roofline(c));
    fflush(stdout);
}

static void print_json_case(const bench_case *c, bool first)
{
    printf(
        "%s\n  {\"mode\":\"%s\",\"tokens\":%lld,\"ms\":%.4f,\"tokens_per_s\":%.2f,\"gflops\":%.2f,"
        "\"weight_gbs\":%.3f,\"roofline\":%.4f,\"limit\":\"%s\",\"fma_share\":%.4f,"
        "\"read_share\":%.4f,\"experts_touched\":%lld,\"weight_bytes\":%.0f,\"router_ms\":%.4f,"
        "\"fma_gflops\":%.2f,\"read_gbs\":%.3f}",
        first ? "" : ",", mode(c), (long long)c->n_tokens, c->ms, (double)c->n_tokens / c->ms * 1e3,
        gflops(c), weight_gbs(c), roofline(c), limit(c), fma_share(c), read_share(c),
        (long long)c->n_experts, c->weight_bytes, c->router_ms, c->machine.fma_gflops,
        c->machine.read_gbs);
}

static void print_json(const bench_options *o, const bench_case *cases, int n,
                       dsmoe_machine machine)
{
    const dsmoe_layer_config *c = &o->config;
    printf("{\"hidden_size\":%lld,\"moe_intermediate_size\":%lld,\"n_routed_experts\":%lld,"
           "\"n_shared_experts\":%lld,\"num_experts_per_tok\":%lld,\"kernels\":\"%s\","
           "\"threads\":%d,\"fma_gflops\":%.2f,\"read_gbs\":%.3f,\"cases\":[",
           (long long)c->hidden_size, (long long)c->moe_intermediate_size,
           (long long)c->n_routed_experts, (long long)c->n_shared_experts,
           (long long)c->num_experts_per_tok, dsmoe_kernels_name(), (int)o->n_threads,
           machine.fma_gflops, machine.read_gbs);
    for (int i = 0; i < n; i++) print_json_case(&cases[i], i == 0);
    printf("\n]}\n");
}

static dsmoe_status run_cases(bench_state *s, dsmoe_error *error)
{
    const bench_options *o = s->options;
    bench_case cases[2 * MAX_CASES] = {0};
    int n = 0;
    dsmoe_machine machine = {0};
    if (!o->json) print_header(o);
    for (int i = 0; i < o->n_infer; i++) cases[n++].n_tokens = o->infer[i];
    for (int i = 0; i < o->n_train; i++)
        cases[n++] = (bench_case){.train = true, .n_tokens = o->train[i]};
    for (int i = 0; i < n; i++) {
        dsmoe_status status = run_case(s, &cases[i], error);
        if (status != DSMOE_OK) return status;
        machine.fma_gflops = fmax(machine.fma_gflops, cases[i].machine.fma_gflops);
        machine.read_gbs = fmax(machine.read_gbs, cases[i].machine.read_gbs);
        if (!o->json) print_case(&cases[i]);
    }
    if (o->json)
        print_json(o, cases, n, machine);
    else
        printf("\nthis machine, best of the same run: %.1f GFLOP/s of multiply-adds, %.1f GB/s of "
               "reading\n",
               machine.fma_gflops, machine.read_gbs);
    return DSMOE_OK;
}

/* ---- the command --------------------------------------------------------------------------- */

/* The numbers of tokens of an option; CLI_OK or an exit code. */
static int parse_tokens(const char *option, const char *text, int64_t values[MAX_CASES], int *n)
{
    if (!text) return CLI_OK;
    *n = cli_parse_list(text, 1, MAX_SIZE, values, MAX_CASES);
    if (*n >= 0) return CLI_OK;
    return cli_usage(command,
                     "%s takes at most %d numbers from 1 to %d, separated by commas, not '%s'",
                     option, MAX_CASES, MAX_SIZE, text);
}

static int parse(int argc, char **argv, bench_options *o)
{
    dsmoe_layer_config *k = &o->config;
    const char *infer = NULL, *train = NULL;
    const option_row rows[] = {
        {"--hidden", NULL, OPTION_INTEGER, &k->hidden_size, 1, MAX_SIZE},
        {"--moe", NULL, OPTION_INTEGER, &k->moe_intermediate_size, 1, MAX_SIZE},
        {"--routed", NULL, OPTION_INTEGER, &k->n_routed_experts, 1, MAX_SIZE},
        {"--shared", NULL, OPTION_INTEGER, &k->n_shared_experts, 0, MAX_SIZE},
        {"--k", NULL, OPTION_INTEGER, &k->num_experts_per_tok, 1, MAX_SIZE},
        {"--tokens", NULL, OPTION_TEXT, &infer, 0, 0},
        {"--train-tokens", NULL, OPTION_TEXT, &train, 0, 0},
        {"--seconds", NULL, OPTION_NUMBER, &o->seconds, 0, 3600},
        {"--threads", "-t", OPTION_INTEGER, &o->n_threads, 1, CLI_MAX_THREADS},
        {"--json", NULL, OPTION_FLAG, &o->json, 0, 0},
    };
    int code = options_parse(command, help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (code >= 0) return code;
    code = parse_tokens("--tokens", infer, o->infer, &o->n_infer);
    if (code == CLI_OK) code = parse_tokens("--train-tokens", train, o->train, &o->n_train);
    if (code != CLI_OK) return code;
    if (o->n_infer + o->n_train > 0) return -1;
    return cli_usage(command, "nothing to measure: --tokens and --train-tokens are empty");
}

int bench_layer(int argc, char **argv)
{
    bench_options o = {.config = dsmoe_layer_config_default(),
                       .infer = {1, 16, 64, 512, 2048},
                       .n_infer = 5,
                       .train = {512, 2048},
                       .n_train = 2,
                       .seconds = 10.0,
                       .n_threads = dsmoe_machine_threads()};
    o.config.hidden_size = 2048;
    o.config.moe_intermediate_size = 1408;
    o.config.n_routed_experts = 64;
    o.config.n_shared_experts = 2;
    o.config.num_experts_per_tok = 6;
    int exit_code = parse(argc, argv, &o);
    if (exit_code >= 0) return exit_code;

    bench_state s = {.options = &o};
    dsmoe_error error;
    dsmoe_status status = dsmoe_layer_config_check(&o.config, &error);
    if (status == DSMOE_OK) status = make_layer(&s, &error);
    bool enough = status != DSMOE_OK || make_buffers(&s);
    if (status == DSMOE_OK && enough) status = run_cases(&s, &error);
    release(&s);
    if (!enough) return cli_failure(command, "not enough memory for these cases");
    return status == DSMOE_OK ? CLI_OK : bench_shape_error(command, &error);
}

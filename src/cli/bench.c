/* bench.c - `dsmoe bench`: calls the benchmark that is asked for, and measures the machine's limits for all
 * of them. */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/suggest.h"

static const char help[] =
    "usage: dsmoe bench layer [options]\n"
    "       dsmoe bench model -m PATH [options]\n"
    "       dsmoe bench train [options]\n"
    "\n"
    "Measures speed and, in the same run, the best that the machine can do.\n"
    "\n"
    "  layer  one MoE layer in float32 on random weights: inference and training\n"
    "  model  a whole model: tokens/s of a prompt and of decoding\n"
    "  train  whole training steps of a language model on random tokens\n"
    "\n"
    "'dsmoe bench layer --help' and so on show their options.\n"
    "\n"
    "example:\n"
    "  dsmoe bench model -m tests/data/lm/base -p 32 -n 8\n";

const double bench_window = 0.03;
static const double longest_window = 0.2;

void bench_fill(float *values, int64_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)state * 0x1p-35f;
    }
}

void bench_fill_tokens(int32_t *tokens, int64_t n, int64_t vocab_size, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((seed >> 33) % (uint64_t)vocab_size);
    }
}

/* Twice the largest cache, so that reads come from memory. */
static size_t probed_size(void)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t size = cache > 0 ? 2 * (size_t)cache : least;
    return size < least ? least : size > most ? most : size;
}

bool bench_probe_create(bench_probe *probe, int n_threads)
{
    size_t size = probed_size();
    *probe = (bench_probe){dsmoe_memory_alloc(size), size, n_threads};
    if (!probe->memory) return false;
    bench_fill(probe->memory, (int64_t)(size / sizeof *probe->memory), 11);
    return true;
}

void bench_probe_free(bench_probe *probe)
{
    dsmoe_memory_free(probe->memory);
    probe->memory = NULL;
}

dsmoe_status bench_probe_measure(const bench_probe *probe, double seconds, dsmoe_machine *best,
                                 dsmoe_error *error)
{
    dsmoe_machine now;
    double window = fmin(fmax(seconds, bench_window), longest_window);
    dsmoe_status status =
        dsmoe_machine_measure(probe->n_threads, window, probe->memory, probe->size, &now, error);
    if (status != DSMOE_OK) return status;
    best->fma_gflops = fmax(best->fma_gflops, now.fma_gflops);
    best->read_gbs = fmax(best->read_gbs, now.read_gbs);
    return DSMOE_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The options that shape a benchmark, and the keys by which messages of the library name them. */
static const struct {
    const char *key, *option;
} shape_options[] = {
    {"hidden_size", "--hidden"},      {"moe_intermediate_size", "--moe"},
    {"n_routed_experts", "--routed"}, {"n_shared_experts", "--shared"},
    {"num_experts_per_tok", "--k"},   {"a batch of", "--batch, --seq"},
};

int bench_shape_error(const char *command, const dsmoe_error *error)
{
    char options[128] = "";
    size_t used = 0;
    if (error->status != DSMOE_ERROR_CONFIG && error->status != DSMOE_ERROR_ARGUMENT)
        return cli_failure(command, "%s", error->message);
    for (size_t i = 0; i < sizeof shape_options / sizeof *shape_options; i++)
        if (strstr(error->message, shape_options[i].key))
            used += (size_t)snprintf(options + used, sizeof options - used, "%s%s",
                                     used ? ", " : "", shape_options[i].option);
    return cli_usage(command, "%s%s%s", options, used ? ": " : "", error->message);
}

int command_bench(int argc, char **argv)
{
    static const char *const parts[] = {"layer", "model", "train"};
    static int (*const run[])(int, char **) = {bench_layer, bench_model, bench_train};
    const char *part = argc > 1 ? argv[1] : NULL;
    for (int i = 0; part && i < 3; i++)
        if (!strcmp(part, parts[i])) return run[i](argc - 1, argv + 1);
    if (part && (!strcmp(part, "--help") || !strcmp(part, "-h"))) {
        fputs(help, stdout);
        return CLI_OK;
    }
    return suggest_part("bench", part, parts, 3);
}

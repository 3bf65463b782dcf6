/* plan_ranks.c - `dsmoe plan --ranks`: memory, bytes sent and time of a training step on several machines,
 * and which way of dividing it to choose. The library makes the prediction (dsmoe_scale_predict); this file
 * asks for it and shows it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_sizes.h"
#include "cli/names.h"
#include "cli/plan.h"
#include "cli/table.h"
#include "cli/train_speed.h"
#include "formats/json_write.h"

enum { N_WAYS = 2 };
static const char *const ways[N_WAYS] = {"data", "experts"};
static const double default_gbs = 15;

typedef struct ranks_view {
    const plan_ranks_options *options;
    const char *name; /* of the model */
    dsmoe_config config;
    dsmoe_model_plan plan;
    dsmoe_scale_options of;
    bool is_measured;
    double memory;      /* bytes of a machine */
    bool shown[N_WAYS]; /* which ways are asked for */
    dsmoe_scale scale[N_WAYS];
} ranks_view;

/* ---- the model and the machine -------------------------------------------------------------------- */

/* -1 or an exit code; *path is to be freed. */
static int find_model(ranks_view *v, char **path)
{
    const plan_ranks_options *o = v->options;
    dsmoe_error error;
    int exit_code = CLI_OK;
    if (!o->config && !o->preset)
        return cli_usage(
            "plan",
            "no model: name one with --preset (tiny, 2b, 16b, v2-lite …) or a file with --config");
    if (o->config)
        exit_code = plan_config_read(o->config, &v->config, path);
    else if (names_check_preset("plan", o->preset) != CLI_OK)
        exit_code = CLI_USAGE;
    else if (dsmoe_config_preset(o->preset, &v->config, &error) != DSMOE_OK)
        exit_code = cli_failure("plan", "%s", error.message);
    if (exit_code != CLI_OK) return exit_code;
    v->name = o->config ? *path : o->preset;
    if (o->vocab_size) v->config.vocab_size = o->vocab_size;
    return model_sizes_apply("plan", &o->sizes, &v->config);
}

/* Trains one layer of the model with a small vocabulary for a few seconds. */
static dsmoe_status measure(ranks_view *v, dsmoe_error *error)
{
    enum { SMALL_VOCABULARY = 8192 };
    train_speed_case one = {
        .config = v->config, .options = v->of.trainer, .n_units = 1, .seconds = 5};
    train_speed speed;
    one.config.num_hidden_layers = 1;
    one.config.first_k_dense_replace = 0;
    if (one.config.vocab_size > SMALL_VOCABULARY) one.config.vocab_size = SMALL_VOCABULARY;
    one.config.bos_token_id = one.config.eos_token_id = -1; /* may be outside it */
    if (one.options.n_threads == 0) one.options.n_threads = dsmoe_machine_threads();
    dsmoe_status status = train_speed_measure(&one, &speed, error);
    if (status != DSMOE_OK) return status;
    return dsmoe_training_speed_find(&one.config, &one.options, one.n_units, &speed.times,
                                     &v->of.speed, error);
}

static void fill_options(ranks_view *v)
{
    const plan_ranks_options *o = v->options;
    dsmoe_trainer_options t = dsmoe_trainer_options_default();
    t.n_sequences = o->batch;
    t.sequence_length = o->seq;
    t.recompute = o->recompute;
    t.n_threads = (int)o->n_threads;
    double flops = 1e9 * o->gflops, bytes = 1e9 * (o->gbs > 0 ? o->gbs : default_gbs);
    v->of = (dsmoe_scale_options){.trainer = t,
                                  .n_ranks = (int)o->n_ranks,
                                  .n_units = o->accumulate ? o->accumulate : o->n_ranks,
                                  .bandwidth = o->network * 1e9 / 8,
                                  .latency = o->latency * 1e-6,
                                  .speed = {flops, flops, flops, bytes},
                                  .imbalance = o->imbalance};
    v->is_measured = o->gflops == 0;
    v->memory = o->memory > 0 ? o->memory * 1e9 : (double)dsmoe_machine_memory();
}

static int predict(ranks_view *v)
{
    dsmoe_error error;
    dsmoe_status status =
        dsmoe_model_plan_make(&v->config, v->of.trainer.sequence_length, &v->plan, &error);
    if (status == DSMOE_OK && v->is_measured) {
        status = measure(v, &error);
        if (status == DSMOE_ERROR_MEMORY)
            return cli_failure("plan",
                               "one layer cannot be measured here: %s; give --gflops instead",
                               error.message);
    }
    for (int i = 0; i < N_WAYS && status == DSMOE_OK; i++) {
        v->of.trainer.parallel = (dsmoe_parallel)i;
        if (v->shown[i]) status = dsmoe_scale_predict(&v->config, &v->of, &v->scale[i], &error);
    }
    return status == DSMOE_OK ? -1 : cli_error("plan", NULL, &error);
}

/* ---- what to choose ----------------------------------------------------------------------------------- */

static bool fits(const ranks_view *v, int way)
{
    return (double)v->scale[way].most_memory <= v->memory;
}

/* The fastest way of those that fit; -1 if none does. */
static int choose(const ranks_view *v)
{
    int best = -1;
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i] && fits(v, i) && (best < 0 || v->scale[i].step < v->scale[best].step))
            best = i;
    return best;
}

typedef enum cause { CAUSE_NETWORK, CAUSE_IMBALANCE, CAUSE_FEW_EXPERTS, CAUSE_COMPUTING } cause;

/* What takes most of the time. */
static cause binding(const ranks_view *v, int way)
{
    const dsmoe_scale *s = &v->scale[way];
    if (s->sending >= s->computing && s->sending >= s->waiting) return CAUSE_NETWORK;
    if (s->waiting < s->computing) return CAUSE_COMPUTING;
    return v->of.n_ranks > v->config.n_routed_experts ? CAUSE_FEW_EXPERTS : CAUSE_IMBALANCE;
}

static const struct {
    const char *key, *text;
} causes[] = {
    {"network", "the network is the limit: larger batches, fewer ranks or a faster network help"},
    {"imbalance", "ranks wait for the one with most rows: --device-loss-alpha evens them out"},
    {"few experts", "there are more ranks than experts: some have none, and wait for the others"},
    {"computing", "computing is the limit: more ranks help"},
};

static double efficiency(const ranks_view *v, int way)
{
    return v->scale[way].useful / v->scale[way].step;
}

static double n_tokens(const ranks_view *v)
{
    return (double)(v->of.n_units * v->options->batch * v->options->seq);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void json_way(const ranks_view *v, int way)
{
    const dsmoe_scale *s = &v->scale[way];
    const dsmoe_trainer_memory *m = &s->memory;
    printf("  {\"parallel\": \"%s\", \"fits\": %s, \"memory\": %zu, \"least_memory\": %zu,\n"
           "   \"memory_parts\": {\"weights\": %zu, \"gradients\": %zu, \"moments\": %zu, "
           "\"activations\": %zu, \"workspace\": %zu},\n",
           ways[way], fits(v, way) ? "true" : "false", s->most_memory, s->least_memory, m->weights,
           m->gradients, m->moments, m->activations, m->workspace);
    printf(
        "   \"sent\": {\"gradients\": %.0f, \"weights\": %.0f, \"rows\": %.0f, \"words\": %.0f},\n"
        "   \"seconds\": {\"step\": %.9g, \"computing\": %.9g, \"waiting\": %.9g, \"sending\": %.9g, "
        "\"hidden\": %.9g, \"useful\": %.9g},\n"
        "   \"tokens_per_s\": %.6g, \"efficiency\": %.6g, \"binds\": \"%s\"}",
        s->gradients, s->weights, s->rows, s->words, s->step, s->computing, s->waiting, s->sending,
        s->hidden, s->useful, n_tokens(v) / s->step, efficiency(v, way),
        causes[binding(v, way)].key);
}

static void json_view(const ranks_view *v)
{
    const plan_ranks_options *o = v->options;
    const dsmoe_training_speed *s = &v->of.speed;
    int best = choose(v);
    bool first = true;
    fputs("{\"model\": ", stdout);
    json_write_string(stdout, v->name);
    printf(
        ", \"parameters\": %lld, \"active_parameters\": %lld,\n \"ranks\": %d, \"network\": %.9g, "
        "\"latency\": %.9g, \"batch\": %lld, \"seq\": %lld, \"accumulate\": %lld,\n",
        (long long)v->plan.total, (long long)v->plan.active, v->of.n_ranks, o->network, o->latency,
        (long long)o->batch, (long long)o->seq, (long long)v->of.n_units);
    printf(" \"speed\": {\"measured\": %s, \"attention\": %.6g, \"experts\": %.6g, \"head\": %.6g, "
           "\"memory\": %.6g}, \"memory\": %.0f,\n \"ways\": [\n",
           v->is_measured ? "true" : "false", s->attention, s->experts, s->head, s->memory,
           v->memory);
    for (int i = 0; i < N_WAYS; i++) {
        if (!v->shown[i]) continue;
        if (!first) fputs(",\n", stdout);
        json_way(v, i);
        first = false;
    }
    printf("],\n \"choice\": %s%s%s}\n", best < 0 ? "" : "\"", best < 0 ? "null" : ways[best],
           best < 0 ? "" : "\"");
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static void table_bytes(text_table *table, double bytes)
{
    char text[CLI_BYTES];
    table_text(table, "%s", bytes > 0 ? cli_format_bytes(bytes, text) : "-");
}

static void table_seconds(text_table *table, double seconds)
{
    if (seconds >= 1)
        table_text(table, "%.*f s", seconds < 100, seconds);
    else
        table_text(table, "%.*f ms", seconds < 0.1, 1e3 * seconds);
}

/* The value in a line of the table, for a way that is shown. */
typedef double way_value(const ranks_view *v, int way);
static double memory_of(const ranks_view *v, int i) { return (double)v->scale[i].most_memory; }
static double least_of(const ranks_view *v, int i)
{
    const dsmoe_scale *s = &v->scale[i];
    return (double)s->least_memory < 0.99 * (double)s->most_memory ? (double)s->least_memory : 0;
}
static double weights_of(const ranks_view *v, int i) { return (double)v->scale[i].memory.weights; }
static double gradients_of(const ranks_view *v, int i)
{
    return (double)v->scale[i].memory.gradients;
}
static double moments_of(const ranks_view *v, int i) { return (double)v->scale[i].memory.moments; }
static double batch_of(const ranks_view *v, int i)
{
    return (double)v->scale[i].memory.activations + (double)v->scale[i].memory.workspace;
}
static double sent_of(const ranks_view *v, int i)
{
    const dsmoe_scale *s = &v->scale[i];
    return s->gradients + s->weights + s->rows + s->words;
}
static double sent_gradients(const ranks_view *v, int i) { return v->scale[i].gradients; }
static double sent_weights(const ranks_view *v, int i) { return v->scale[i].weights; }
static double sent_rows(const ranks_view *v, int i) { return v->scale[i].rows; }
static double step_of(const ranks_view *v, int i) { return v->scale[i].step; }
static double computing_of(const ranks_view *v, int i) { return v->scale[i].computing; }
static double waiting_of(const ranks_view *v, int i) { return v->scale[i].waiting; }
static double sending_of(const ranks_view *v, int i) { return v->scale[i].sending; }
static double hidden_of(const ranks_view *v, int i) { return v->scale[i].hidden; }

static const struct {
    const char *name;
    way_value *value;
    void (*put)(text_table *table, double value);
} lines[] = {
    {"memory of a rank", memory_of, table_bytes},
    {"  of the one with least", least_of, table_bytes},
    {"  weights", weights_of, table_bytes},
    {"  gradients", gradients_of, table_bytes},
    {"  moments", moments_of, table_bytes},
    {"  a batch", batch_of, table_bytes},
    {"sent by a rank", sent_of, table_bytes},
    {"  gradients", sent_gradients, table_bytes},
    {"  weights", sent_weights, table_bytes},
    {"  rows of experts", sent_rows, table_bytes},
};

static const struct {
    const char *name;
    way_value *value;
} times[] = {
    {"step", step_of},
    {"  computing", computing_of},
    {"  waiting for other ranks", waiting_of},
    {"  sending", sending_of},
    {"  (sending hidden by computing)", hidden_of},
};

static void begin_line(const ranks_view *v, text_table *table, const char *name)
{
    table->n_columns = 1 + v->shown[0] + v->shown[1];
    table_text(table, "%s", name);
}

static void print_sizes(const ranks_view *v)
{
    text_table table = {.n_headers = 1};
    begin_line(v, &table, "");
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i]) table_text(&table, "%s", ways[i]);
    for (size_t line = 0; line < sizeof lines / sizeof *lines; line++) {
        bool any = false;
        for (int i = 0; i < N_WAYS; i++) any = any || (v->shown[i] && lines[line].value(v, i) > 0);
        if (!any) continue;
        begin_line(v, &table, lines[line].name);
        for (int i = 0; i < N_WAYS; i++)
            if (v->shown[i]) lines[line].put(&table, lines[line].value(v, i));
    }
    table_print(&table);
}

static void print_times(const ranks_view *v)
{
    text_table table = {.n_headers = 1};
    begin_line(v, &table, "time");
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i]) table_text(&table, "%s", ways[i]);
    for (size_t line = 0; line < sizeof times / sizeof *times; line++) {
        begin_line(v, &table, times[line].name);
        for (int i = 0; i < N_WAYS; i++)
            if (v->shown[i]) table_seconds(&table, times[line].value(v, i));
    }
    begin_line(v, &table, "tokens/s");
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i])
            table_text(&table, "%.*f", n_tokens(v) / v->scale[i].step < 100,
                       n_tokens(v) / v->scale[i].step);
    begin_line(v, &table, "useful work");
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i]) table_share(&table, efficiency(v, i), 1, 0);
    table_print(&table);
}

static void print_choice(const ranks_view *v)
{
    int best = choose(v);
    char memory[CLI_BYTES], needed[CLI_BYTES];
    cli_format_bytes(v->memory, memory);
    for (int i = 0; i < N_WAYS; i++)
        if (v->shown[i] && !fits(v, i))
            printf("--parallel %s does not fit: a rank takes %s, but a machine has %s\n", ways[i],
                   cli_format_bytes((double)v->scale[i].most_memory, needed), memory);
    if (best < 0) {
        puts("with more ranks, a smaller batch or --recompute, a rank takes less");
        return;
    }
    const dsmoe_scale *other = &v->scale[1 - best];
    if (v->shown[0] && v->shown[1] && fits(v, 1 - best))
        printf("use --parallel %s: %.2f times as fast as %s\n", ways[best],
               other->step / v->scale[best].step, ways[1 - best]);
    else
        printf("use --parallel %s: it fits\n", ways[best]);
    puts(causes[binding(v, best)].text);
}

static void print_view(const ranks_view *v)
{
    const plan_ranks_options *o = v->options;
    const dsmoe_training_speed *s = &v->of.speed;
    char total[TABLE_CELL], active[TABLE_CELL], tokens[TABLE_CELL];
    printf("%s: %s parameters, %s active; %lld batches of %lld x %lld a step, %s tokens\n", v->name,
           number_shorten(v->plan.total, total), number_shorten(v->plan.active, active),
           (long long)v->of.n_units, (long long)o->batch, (long long)o->seq,
           number_group((int64_t)n_tokens(v), tokens));
    printf("%d ranks, %.4g Gbit/s and %.4g us between them; ", v->of.n_ranks, o->network,
           o->latency);
    if (v->is_measured)
        printf(
            "each like this machine: %.1f GFLOP/s in attention, %.1f\nin experts, %.1f in the head, "
            "%.1f GB/s of memory\n\n",
            1e-9 * s->attention, 1e-9 * s->experts, 1e-9 * s->head, 1e-9 * s->memory);
    else
        printf("each %.4g GFLOP/s and %.4g GB/s of memory\n\n", 1e-9 * s->experts,
               1e-9 * s->memory);
    print_sizes(v);
    putchar('\n');
    print_times(v);
    putchar('\n');
    print_choice(v);
}

int plan_ranks(const plan_ranks_options *options)
{
    ranks_view v = {.options = options, .shown = {true, true}};
    dsmoe_parallel only = DSMOE_PARALLEL_DATA;
    char *path = NULL;
    if (names_find_parallel("plan", options->parallel, &only) != CLI_OK) return CLI_USAGE;
    if (options->parallel) v.shown[1 - (int)only] = false;
    int exit_code = find_model(&v, &path);
    if (exit_code < 0) {
        fill_options(&v);
        if (!v.plan.n_moe_layers && v.config.n_routed_experts == 0) v.shown[1] = false;
        exit_code = predict(&v);
    }
    if (exit_code < 0) {
        (options->json ? json_view : print_view)(&v);
        exit_code = CLI_OK;
    }
    free(path);
    return exit_code;
}

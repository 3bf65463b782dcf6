/* plan_model.c - `dsmoe plan --config`: what a model's config.json describes, part by part. */
#include "cli/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/table.h"

enum { N_PARTS = 9, N_WEIGHT_FORMATS = 4 };

/* A part of the model and what it costs. */
typedef struct model_part {
    const char *name, *key;
    int64_t parameters, active;
    int64_t multiplied; /* by every token */
    double flops;
} model_part;

typedef struct model_view {
    const char *path;
    dsmoe_config config;
    int64_t n_tokens;
    dsmoe_model_plan plan;
    model_part parts[N_PARTS];
    double flops, causal_flops; /* attention over the full square, and over its causal half */
    char *combinations;         /* NULL without MoE layers */
} model_view;

/* Weights as files hold them; the last two are blocks of 32 with one f16 scale. */
static const struct {
    const char *name;
    int64_t block_weights, block_bytes;
} weight_formats[N_WEIGHT_FORMATS] = {
    {"f32", 1, 4}, {"bf16", 1, 2}, {"8-bit", 32, 34}, {"4-bit", 32, 18}};

static double weight_bytes(const model_view *view, int format)
{
    return (double)view->plan.total * (double)weight_formats[format].block_bytes /
           (double)weight_formats[format].block_weights;
}

/* Every part is multiplied but the embedding, which is looked up, unless it is the head as well. */
static void view_count(model_view *view)
{
    const dsmoe_model_plan *plan = &view->plan;
    int64_t routed = plan->active_routed_experts;
    bool tied = view->config.tie_word_embeddings;
    const model_part parts[N_PARTS] = {
        {"embedding", "embedding", plan->embedding, plan->embedding, 0, 0},
        {"attention", "attention", plan->attention, plan->attention, plan->attention, 0},
        {"  scores and values", "attention_scores", 0, 0, 0, plan->attention_flops},
        {"dense FFN", "dense_ffn", plan->dense_ffn, plan->dense_ffn, plan->dense_ffn, 0},
        {"routed experts", "routed_experts", plan->routed_experts, routed, routed, 0},
        {"shared experts", "shared_experts", plan->shared_experts, plan->shared_experts,
         plan->shared_experts, 0},
        {"router", "router", plan->router, plan->router, plan->router, 0},
        {"norms", "norms", plan->norms, plan->norms, plan->norms, 0},
        {tied ? "lm_head (tied)" : "lm_head", "lm_head", plan->lm_head, plan->lm_head,
         tied ? plan->embedding : plan->lm_head, 0},
    };
    memcpy(view->parts, parts, sizeof parts);
    for (int i = 0; i < N_PARTS; i++)
        view->parts[i].flops += 6.0 * (double)parts[i].multiplied * (double)view->n_tokens;
    view->flops = plan->matmul_flops + plan->attention_flops;
    view->causal_flops = plan->matmul_flops + plan->attention_flops / 2;
}

/* The conventional architectures that this one could be a split of: m divides m N and m K. Finds
 * the first m above `m`; 0 if there is none. */
static int64_t next_split(const dsmoe_config *config, int64_t m)
{
    int64_t n_experts = config->n_shared_experts + config->n_routed_experts;
    int64_t k_active = config->n_shared_experts + config->num_experts_per_tok;
    for (m++; m <= k_active; m++)
        if (n_experts % m == 0 && k_active % m == 0) return m;
    return 0;
}

/* The released model's shape, for which the paper gives the FLOPs of 4K tokens. */
static const double paper_flops_16b = 74.4e12;

static bool view_is_16b(const model_view *view)
{
    const dsmoe_config *config = &view->config;
    return view->plan.total == INT64_C(16375728128) && view->plan.active == INT64_C(2828650496) &&
           config->num_hidden_layers == 28 && config->hidden_size == 2048 && view->n_tokens == 4096;
}

static void json_model(const model_view *view)
{
    const dsmoe_config *config = &view->config;
    fputs("{\"config\": ", stdout);
    cli_print_json_string(stdout, view->path);
    printf(",\n \"num_hidden_layers\": %" PRId64 ", \"moe_layers\": [", config->num_hidden_layers);
    const char *separator = "";
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(config, layer)) continue;
        printf("%s%" PRId64, separator, layer);
        separator = ", ";
    }
    printf("],\n \"total\": %" PRId64 ", \"active\": %" PRId64 ",\n \"parts\": {", view->plan.total,
           view->plan.active);
    for (int i = 0; i < N_PARTS; i++) {
        const model_part *part = &view->parts[i];
        printf("%s\n  \"%s\": {\"parameters\": %" PRId64 ", \"active\": %" PRId64
               ", \"flops\": %.17g}",
               i ? "," : "", part->key, part->parameters, part->active, part->flops);
    }
    printf("},\n \"n_tokens\": %" PRId64 ", \"flops\": %.17g, \"causal_flops\": %.17g",
           view->n_tokens, view->flops, view->causal_flops);
    if (view_is_16b(view)) printf(", \"paper_flops\": %.17g", paper_flops_16b);
    if (view->combinations) {
        printf(",\n \"combinations\": \"%s\", \"conventional\": [", view->combinations);
        for (int64_t m = next_split(config, 1), first = m; m; m = next_split(config, m))
            printf("%s{\"m_split\": %" PRId64 ", \"n_experts\": %" PRId64 ", \"k_active\": %" PRId64
                   ", \"ffn_size\": %" PRId64 "}",
                   m == first ? "" : ", ", m,
                   (config->n_shared_experts + config->n_routed_experts) / m,
                   (config->n_shared_experts + config->num_experts_per_tok) / m,
                   config->moe_intermediate_size * m);
        putchar(']');
    }
    fputs(",\n \"bytes\": {", stdout);
    for (int i = 0; i < N_WEIGHT_FORMATS; i++)
        printf("%s\"%s\": %.0f", i ? ", " : "", weight_formats[i].name, weight_bytes(view, i));
    puts("}}");
}

/* "0, 2-27": the layers that are MoE, or those that are not, as far as a line can hold them. */
static void print_layer_ranges(const dsmoe_config *config, bool moe)
{
    int64_t n_layers = config->num_hidden_layers;
    int n_ranges = 0;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (dsmoe_config_layer_is_moe(config, layer) != moe) continue;
        int64_t first = layer;
        while (layer + 1 < n_layers && dsmoe_config_layer_is_moe(config, layer + 1) == moe) layer++;
        if (n_ranges == 5) {
            fputs(", ...", stdout);
            return;
        }
        printf("%s%" PRId64, n_ranges++ ? ", " : "", first);
        if (layer > first) printf("-%" PRId64, layer);
    }
}

static void print_shape(const model_view *view)
{
    const dsmoe_config *config = &view->config;
    int64_t n_moe = view->plan.n_moe_layers, heads = config->num_attention_heads;
    char a[TABLE_CELL], b[TABLE_CELL];
    printf("model         %" PRId64 " layers, hidden size %s, %" PRId64 " heads of %" PRId64,
           config->num_hidden_layers, number_group(config->hidden_size, a), heads,
           config->hidden_size / heads);
    if (config->num_key_value_heads != heads)
        printf(" (%" PRId64 " for keys and values)", config->num_key_value_heads);
    printf(", vocabulary %s\n", number_group(config->vocab_size, a));
    if (n_moe < config->num_hidden_layers) {
        fputs("dense layers  ", stdout);
        print_layer_ranges(config, false);
        printf(": FFN of width %s\n", number_group(config->intermediate_size, a));
    }
    if (n_moe > 0) {
        fputs("MoE layers    ", stdout);
        print_layer_ranges(config, true);
        printf(": experts of width %s, ", number_group(config->moe_intermediate_size, a));
        if (config->n_shared_experts)
            printf("%s shared and ", number_group(config->n_shared_experts, a));
        printf("%s routed, of which a token takes %s\n", number_group(config->n_routed_experts, a),
               number_group(config->num_experts_per_tok, b));
    }
}

/* The unit in which a number of FLOPs is best read. */
static double flops_unit(double flops, const char **name)
{
    static const char *const names[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    double unit = 1e6;
    int i = 0;
    for (; i < 3 && flops >= 1000 * unit; i++) unit *= 1000;
    *name = names[i];
    return unit;
}

/* 16375728128 as "16.4B". */
static void table_rounded(text_table *table, int64_t number)
{
    static const char units[] = " KMBT";
    double rounded = (double)number;
    int unit = 0;
    for (; rounded >= 999.95 && unit < 4; unit++) rounded /= 1000;
    table_text(table, "%.1f%c", rounded, units[unit]);
}

static void print_part_table(const model_view *view)
{
    const char *unit_name;
    double unit = flops_unit(view->flops, &unit_name);
    double total = (double)view->plan.total, active = (double)view->plan.active;
    text_table table = {.n_columns = 7, .n_headers = 1};
    const char *const headers[] = {"",      "parameters", "share", "active",
                                   "share", unit_name,    "share"};
    for (int i = 0; i < 7; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < N_PARTS; i++) {
        const model_part *part = &view->parts[i];
        if (part->parameters == 0 && part->flops == 0) continue;
        table_text(&table, "%s", part->name);
        table_number(&table, part->parameters);
        table_share(&table, (double)part->parameters, total, 2);
        table_number(&table, part->active);
        table_share(&table, (double)part->active, active, 2);
        table_text(&table, part->flops > 0 ? "%.3f" : "-", part->flops / unit);
        table_share(&table, part->flops, view->flops, 2);
    }
    table_text(&table, "total");
    table_number(&table, view->plan.total);
    table_rounded(&table, view->plan.total);
    table_number(&table, view->plan.active);
    table_rounded(&table, view->plan.active);
    table_text(&table, "%.3f", view->flops / unit);
    table_text(&table, "%s", "");
    table_print(&table);
}

static void print_flops(const model_view *view)
{
    const char *unit_name;
    double unit = flops_unit(view->flops, &unit_name);
    char tokens[TABLE_CELL];
    printf("%s         forward and backward over T = %s tokens: 6 x T for each active parameter\n"
           "              (an embedding is only looked up) and 12 x layers x hidden x T^2 for the\n"
           "              scores and values of attention, the full square as in the public code\n"
           "              full square %.1f, causal half %.1f",
           unit_name, number_group(view->n_tokens, tokens), view->flops / unit,
           view->causal_flops / unit);
    if (view_is_16b(view))
        printf(", the paper %.1f (%+.1f %% and %+.1f %% here)", paper_flops_16b / unit,
               100 * (view->flops / paper_flops_16b - 1),
               100 * (view->causal_flops / paper_flops_16b - 1));
    putchar('\n');
}

static void print_combinations(const model_view *view)
{
    const dsmoe_config *config = &view->config;
    int64_t n_experts = config->n_shared_experts + config->n_routed_experts;
    int64_t k_active = config->n_shared_experts + config->num_experts_per_tok;
    char count[TABLE_CELL], width[TABLE_CELL];
    count_shorten(view->combinations, count);
    printf("combinations  C(%" PRId64 ", %" PRId64 ") = %s for each token and layer\n",
           config->n_routed_experts, config->num_experts_per_tok, count);
    int64_t m = next_split(config, 1);
    printf("conventional  %s\n",
           m ? "the same expert parameters and compute, before the split in m:"
             : "none whose split would give these numbers of experts");
    for (; m; m = next_split(config, m))
        printf("              m = %-3" PRId64 " top-%" PRId64 " of %" PRId64 " experts of %s\n", m,
               k_active / m, n_experts / m, number_group(config->moe_intermediate_size * m, width));
}

static void print_weights(const model_view *view)
{
    fputs("weights       ", stdout);
    for (int i = 0; i < N_WEIGHT_FORMATS; i++) {
        double bytes = weight_bytes(view, i);
        double unit = bytes >= 1e9 ? 1e9 : bytes >= 1e6 ? 1e6 : 1e3;
        printf("%s%s %.2f %cB", i ? ", " : "", weight_formats[i].name, bytes / unit,
               unit == 1e9   ? 'G'
               : unit == 1e6 ? 'M'
                             : 'k');
    }
    puts("\n              (8 and 4 bits with an f16 scale for every 32 weights, as Q8_0 and Q4_0)");
}

static void print_model(const model_view *view)
{
    printf("%s\n\n", view->path);
    print_shape(view);
    putchar('\n');
    print_part_table(view);
    putchar('\n');
    print_flops(view);
    if (view->combinations) print_combinations(view);
    print_weights(view);
    if (view->combinations && !count_is_short(view->combinations)) {
        putchar('\n');
        count_print(view->config.n_routed_experts, view->config.num_experts_per_tok,
                    view->combinations);
    }
}

/* PATH, or PATH/config.json if that is a folder, in a string to free(). */
static char *config_path(const char *path)
{
    struct stat status;
    char *full = NULL;
    bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    const char *slash = path[0] && path[strlen(path) - 1] == '/' ? "" : "/";
    if (asprintf(&full, "%s%s%s", path, folder ? slash : "", folder ? "config.json" : "") < 0)
        return NULL;
    return full;
}

int plan_model(const char *config, int64_t n_tokens, bool json)
{
    model_view view = {.n_tokens = n_tokens};
    dsmoe_error error;
    char *path = config_path(config);
    if (!path) return cli_failure("plan", "out of memory");
    view.path = path;
    int exit_code = CLI_FAILURE;
    if (dsmoe_config_read(path, &view.config, &error) != DSMOE_OK ||
        dsmoe_model_plan_make(&view.config, n_tokens, &view.plan, &error) != DSMOE_OK) {
        cli_failure("plan", "%s", error.message);
        goto done;
    }
    if (view.plan.n_moe_layers > 0 &&
        dsmoe_combinations(view.config.n_routed_experts, view.config.num_experts_per_tok,
                           &view.combinations, &error) != DSMOE_OK) {
        cli_failure("plan", "%s: num_experts_per_tok: %s", path, error.message);
        goto done;
    }
    view_count(&view);
    (json ? json_model : print_model)(&view);
    exit_code = CLI_OK;
done:
    free(view.combinations);
    free(path);
    return exit_code;
}

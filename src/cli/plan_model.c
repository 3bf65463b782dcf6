/* plan_model.c - `dsmoe plan --config`: what a model's config.json describes, part by part. */
#include "cli/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/model_path.h"
#include "cli/model_view.h"
#include "cli/table.h"
#include "formats/json_write.h"

enum { N_WEIGHT_FORMATS = 4 };

typedef struct plan_view {
    const char *path;
    model_view model;
    char *combinations; /* NULL without MoE layers */
} plan_view;

/* Weights as files hold them; the last two are blocks of 32 with one f16 scale. */
static const struct {
    const char *name;
    int64_t block_weights, block_bytes;
} weight_formats[N_WEIGHT_FORMATS] = {
    {"f32", 1, 4}, {"bf16", 1, 2}, {"8-bit", 32, 34}, {"4-bit", 32, 18}};

static double weight_bytes(const plan_view *view, int format)
{
    return (double)view->model.plan.total * (double)weight_formats[format].block_bytes /
           (double)weight_formats[format].block_weights;
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

static bool view_is_16b(const model_view *model)
{
    return model->plan.total == INT64_C(16375728128) && model->plan.active == INT64_C(2828650496) &&
           model->config.num_hidden_layers == 28 && model->config.hidden_size == 2048 &&
           model->n_tokens == 4096;
}

static void json_model(const plan_view *view)
{
    const model_view *model = &view->model;
    const dsmoe_config *config = &model->config;
    fputs("{\"config\": ", stdout);
    json_write_string(stdout, view->path);
    fputs(",\n ", stdout);
    model_view_print_json(model, true);
    printf(",\n \"n_tokens\": %" PRId64 ", \"flops\": %.17g, \"causal_flops\": %.17g",
           model->n_tokens, model->flops, model->causal_flops);
    if (view_is_16b(model)) printf(", \"paper_flops\": %.17g", paper_flops_16b);
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

static void print_flops(const model_view *model)
{
    const char *unit_name;
    double unit = flops_unit(model->flops, &unit_name);
    char tokens[TABLE_CELL];
    const char *scores = model->config.kv_lora_rank > 0 ? "6 x layers x heads x (nope + rope + v)"
                                                        : "12 x layers x hidden";
    printf("%s         forward and backward over T = %s tokens: 6 x T for each active parameter\n"
           "              (an embedding is only looked up) and %s x T^2 for the\n"
           "              scores and values of attention, the full square as in the public code\n"
           "              full square %.1f, causal half %.1f",
           unit_name, number_group(model->n_tokens, tokens), scores, model->flops / unit,
           model->causal_flops / unit);
    if (view_is_16b(model))
        printf(", the paper %.1f (%+.1f %% and %+.1f %% here)", paper_flops_16b / unit,
               100 * (model->flops / paper_flops_16b - 1),
               100 * (model->causal_flops / paper_flops_16b - 1));
    putchar('\n');
}

static void print_combinations(const plan_view *view)
{
    const dsmoe_config *config = &view->model.config;
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

static void print_weights(const plan_view *view)
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

static void print_model(const plan_view *view)
{
    printf("%s\n\n", view->path);
    model_view_print_shape(&view->model);
    putchar('\n');
    model_view_print_parts(&view->model, true);
    putchar('\n');
    print_flops(&view->model);
    if (view->combinations) print_combinations(view);
    print_weights(view);
    if (view->combinations && !count_is_short(view->combinations)) {
        putchar('\n');
        count_print(view->model.config.n_routed_experts, view->model.config.num_experts_per_tok,
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

int plan_config_read(const char *config_or_folder, dsmoe_config *config, char **path)
{
    dsmoe_error error;
    model_path found;
    *path = NULL;
    int exit_code = model_path_find("plan", &config_or_folder, &found);
    if (exit_code != CLI_OK) return exit_code;
    char *full = config_path(config_or_folder);
    if (!full) return cli_failure("plan", "out of memory");
    if (dsmoe_config_read(full, config, &error) != DSMOE_OK) {
        free(full);
        return cli_failure("plan", "%s", error.message);
    }
    *path = full;
    return CLI_OK;
}

int plan_model(const char *config_or_folder, int64_t n_tokens, bool json)
{
    plan_view view = {0};
    dsmoe_config config;
    dsmoe_error error;
    char *path;
    int exit_code = plan_config_read(config_or_folder, &config, &path);
    if (exit_code != CLI_OK) return exit_code;
    view.path = path;
    if (model_view_make(&config, n_tokens, &view.model, &error) != DSMOE_OK) {
        exit_code = cli_failure("plan", "%s", error.message);
    } else if (view.model.plan.n_moe_layers > 0 &&
               dsmoe_combinations(config.n_routed_experts, config.num_experts_per_tok,
                                  &view.combinations, &error) != DSMOE_OK) {
        exit_code = cli_failure("plan", "%s: num_experts_per_tok: %s", path, error.message);
    } else {
        (json ? json_model : print_model)(&view);
    }
    free(view.combinations);
    free(path);
    return exit_code;
}

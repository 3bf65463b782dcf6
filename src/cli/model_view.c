/* model_view.c - the shape of a model and its parts. */
#include "cli/model_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/table.h"

/* A token is multiplied with every part but the embedding, which is only looked up, unless it is also the
 * head. */
static void view_count(model_view *view)
{
    const dsmoe_model_plan *plan = &view->plan;
    int64_t routed = plan->active_routed_experts;
    bool tied = view->config.tie_word_embeddings;
    const model_part parts[MODEL_PARTS] = {
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
    for (int i = 0; i < MODEL_PARTS; i++)
        view->parts[i].flops += 6.0 * (double)parts[i].multiplied * (double)view->n_tokens;
    view->flops = plan->matmul_flops + plan->attention_flops;
    view->causal_flops = plan->matmul_flops + plan->attention_flops / 2;
}

dsmoe_status model_view_make(const dsmoe_config *config, int64_t n_tokens, model_view *view,
                             dsmoe_error *error)
{
    *view = (model_view){.config = *config, .n_tokens = n_tokens};
    dsmoe_status status = dsmoe_model_plan_make(config, n_tokens, &view->plan, error);
    if (status == DSMOE_OK) view_count(view);
    return status;
}

/* "0, 2-27": the layers that are MoE, or those that are not; "..." after five ranges. */
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

static void print_heads(const dsmoe_config *c)
{
    int64_t heads = c->num_attention_heads;
    printf("%" PRId64 " heads of ", heads);
    if (c->kv_lora_rank > 0)
        printf("%" PRId64 " + %" PRId64, c->qk_nope_head_dim, c->qk_rope_head_dim);
    else
        printf("%" PRId64, c->hidden_size / heads);
    if (c->num_key_value_heads != heads)
        printf(" (%" PRId64 " for keys and values)", c->num_key_value_heads);
}

/* How keys, values and queries are made if attention is latent. */
static void print_latent(const dsmoe_config *c)
{
    if (c->kv_lora_rank == 0) return;
    printf("attention     latent: keys and values of %" PRId64 " from %" PRId64
           " numbers a token, queries ",
           c->v_head_dim, c->kv_lora_rank);
    if (c->q_lora_rank > 0)
        printf("from %" PRId64 "\n", c->q_lora_rank);
    else
        puts("not compressed");
}

/* Describes the gate, unless it is the paper's. */
static void print_gate(const dsmoe_config *c)
{
    if (c->model_type == DSMOE_DEEPSEEK) return;
    printf("gate          %s", c->scoring_func == DSMOE_SCORING_SIGMOID
                                   ? "sigmoid, choice corrected by a bias"
                                   : "softmax");
    if (c->n_group > 1)
        printf(", experts of %" PRId64 " of %" PRId64 " groups", c->topk_group, c->n_group);
    if (c->norm_topk_prob) fputs(", normalised", stdout);
    if (c->routed_scaling_factor != 1) printf(", times %g", c->routed_scaling_factor);
    putchar('\n');
}

void model_view_print_shape(const model_view *view)
{
    const dsmoe_config *config = &view->config;
    int64_t n_moe = view->plan.n_moe_layers;
    char a[TABLE_CELL], b[TABLE_CELL];
    printf("model         %" PRId64 " layers, hidden size %s, ", config->num_hidden_layers,
           number_group(config->hidden_size, a));
    print_heads(config);
    printf(", vocabulary %s\n", number_group(config->vocab_size, a));
    print_latent(config);
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
        print_gate(config);
    }
}

double flops_unit(double flops, const char **name)
{
    static const char *const names[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    double unit = 1e6;
    int i = 0;
    for (; i < 3 && flops >= 1000 * unit; i++) unit *= 1000;
    *name = names[i];
    return unit;
}

void model_view_print_parts(const model_view *view, bool with_flops)
{
    const char *unit_name;
    double unit = flops_unit(view->flops, &unit_name);
    double total = (double)view->plan.total, active = (double)view->plan.active;
    char rounded[TABLE_CELL];
    text_table table = {.n_columns = with_flops ? 7 : 5, .n_headers = 1};
    const char *const headers[] = {"",      "parameters", "share", "active",
                                   "share", unit_name,    "share"};
    for (int i = 0; i < table.n_columns; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < MODEL_PARTS; i++) {
        const model_part *part = &view->parts[i];
        if (part->parameters == 0 && (part->flops == 0 || !with_flops)) continue;
        table_text(&table, "%s", part->name);
        table_number(&table, part->parameters);
        table_share(&table, (double)part->parameters, total, 2);
        table_number(&table, part->active);
        table_share(&table, (double)part->active, active, 2);
        if (!with_flops) continue;
        table_text(&table, part->flops > 0 ? "%.3f" : "-", part->flops / unit);
        table_share(&table, part->flops, view->flops, 2);
    }
    table_text(&table, "total");
    table_number(&table, view->plan.total);
    table_text(&table, "%s", number_shorten(view->plan.total, rounded));
    table_number(&table, view->plan.active);
    table_text(&table, "%s", number_shorten(view->plan.active, rounded));
    if (with_flops) {
        table_text(&table, "%.3f", view->flops / unit);
        table_text(&table, "%s", "");
    }
    table_print(&table);
}

void model_view_print_json(const model_view *view, bool with_flops)
{
    const dsmoe_config *config = &view->config;
    printf("\"num_hidden_layers\": %" PRId64 ", \"moe_layers\": [", config->num_hidden_layers);
    const char *separator = "";
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(config, layer)) continue;
        printf("%s%" PRId64, separator, layer);
        separator = ", ";
    }
    printf("],\n \"total\": %" PRId64 ", \"active\": %" PRId64 ",\n \"parts\": {", view->plan.total,
           view->plan.active);
    for (int i = 0; i < MODEL_PARTS; i++) {
        const model_part *part = &view->parts[i];
        printf("%s\n  \"%s\": {\"parameters\": %" PRId64 ", \"active\": %" PRId64, i ? "," : "",
               part->key, part->parameters, part->active);
        if (with_flops) printf(", \"flops\": %.17g", part->flops);
        putchar('}');
    }
    putchar('}');
}

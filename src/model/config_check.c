/* config_check.c - checks a configuration, wherever it comes from. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "model/config_keys.h"

bool dsmoe_config_layer_is_moe(const dsmoe_config *config, int64_t layer)
{
    return config->n_routed_experts > 0 && layer >= config->first_k_dense_replace &&
           config->moe_layer_freq > 0 && layer % config->moe_layer_freq == 0;
}

dsmoe_layer_config dsmoe_config_layer(const dsmoe_config *config)
{
    return (dsmoe_layer_config){
        .hidden_size = config->hidden_size,
        .moe_intermediate_size = config->moe_intermediate_size,
        .n_routed_experts = config->n_routed_experts,
        .n_shared_experts = config->n_shared_experts,
        .num_experts_per_tok = config->num_experts_per_tok,
        .norm_topk_prob = config->norm_topk_prob,
        .scoring_func = config_scoring_func(config),
        .aux_loss_alpha = (float)config->aux_loss_alpha,
        .seq_aux = config->seq_aux,
        .topk_method = config_topk_method(config),
        .n_group = config->n_group,
        .topk_group = config->topk_group,
        .routed_scaling_factor = (float)config->routed_scaling_factor,
    };
}

/* Latent attention has as many keys as queries, and no biases. */
static dsmoe_status check_latent(const dsmoe_config *config, dsmoe_error *error)
{
    STATUS_TRY(keys_check(config_latent_keys.keys, config_latent_keys.n_keys, config, error));
    if (config->num_key_value_heads != config->num_attention_heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_key_value_heads %" PRId64
                           " differs from num_attention_heads %" PRId64
                           ", but latent attention needs them equal",
                           config->num_key_value_heads, config->num_attention_heads);
    if (config->qk_rope_head_dim % 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "qk_rope_head_dim %" PRId64
                           " is odd, but rotary embeddings rotate pairs",
                           config->qk_rope_head_dim);
    if (config->attention_bias)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "attention_bias is not supported with latent attention");
    return DSMOE_OK;
}

static dsmoe_status check_groups(const dsmoe_config *c, dsmoe_error *error)
{
    bool in_groups = c->topk_method != DSMOE_TOPK_GREEDY && c->n_group > 1;
    if (!in_groups || c->n_routed_experts == 0) return DSMOE_OK;
    if (c->n_routed_experts % c->n_group)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group %" PRId64 " does not divide n_routed_experts %" PRId64,
                           c->n_group, c->n_routed_experts);
    int64_t size = c->n_routed_experts / c->n_group;
    if (c->topk_group < 1 || c->topk_group > c->n_group ||
        c->topk_group * size < c->num_experts_per_tok)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "topk_group %" PRId64 " of %" PRId64 " groups of %" PRId64
                           " experts leave fewer than %" PRId64 " to choose from",
                           c->topk_group, c->n_group, size, c->num_experts_per_tok);
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC && size < 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group %" PRId64 " leaves groups of one expert, but noaux_tc compares"
                           " their two best",
                           c->n_group);
    return DSMOE_OK;
}

static dsmoe_status check_attention(const dsmoe_config *config, dsmoe_error *error)
{
    if (config->model_type != DSMOE_DEEPSEEK) return check_latent(config, error);
    STATUS_TRY(keys_check(config_first_keys.keys, config_first_keys.n_keys, config, error));
    int64_t hidden = config->hidden_size, heads = config->num_attention_heads;
    int64_t kv_heads = config->num_key_value_heads;
    if (hidden % heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "hidden_size %" PRId64
                           " is not divisible by num_attention_heads %" PRId64,
                           hidden, heads);
    if (hidden / heads % 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "hidden_size %" PRId64 " over num_attention_heads %" PRId64
                           " is odd, but rotary embeddings rotate pairs",
                           hidden, heads);
    if (kv_heads < 1 || heads % kv_heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_attention_heads %" PRId64
                           " is not divisible by num_key_value_heads %" PRId64,
                           heads, kv_heads);
    return DSMOE_OK;
}

static dsmoe_status check_rope_scaling(const dsmoe_config *config, dsmoe_error *error)
{
    double factor = config->rope_scaling_factor;
    switch (config->rope_scaling) {
    case DSMOE_ROPE_NONE: return DSMOE_OK;
    case DSMOE_ROPE_DYNAMIC: /* the base grows with the power d/(d-2) */
        if (config_head_dim(config) == 2)
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "rope_scaling type \"dynamic\" needs heads wider than 2");
        break;
    case DSMOE_ROPE_LINEAR: break;
    case DSMOE_ROPE_YARN:
        STATUS_TRY(keys_check(config_yarn_keys.keys, config_yarn_keys.n_keys, config, error));
        break;
    default:
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling is %d, which is not a known type",
                           (int)config->rope_scaling);
    }
    if (factor >= 1 && factor <= 1e6) return DSMOE_OK; /* false for a NaN */
    return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling factor is %g, outside 1 to 1e6",
                       factor);
}

static dsmoe_status check_token_id(const char *key, int64_t id, const dsmoe_config *config,
                                   dsmoe_error *error)
{
    if (id >= -1 && id < config->vocab_size) return DSMOE_OK; /* -1: none */
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s is %" PRId64
                       ", which is not a token id below the vocab_size of %" PRId64,
                       key, id, config->vocab_size);
}

/* The sizes that a model needs if it has dense layers, or MoE layers. What passes here and in the
 * ranges above passes dsmoe_layer_config_check. */
static dsmoe_status check_layers(const dsmoe_config *config, dsmoe_error *error)
{
    bool dense = false, moe = false;
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++)
        *(dsmoe_config_layer_is_moe(config, layer) ? &moe : &dense) = true;
    const char *missing = NULL;
    if (dense && !config->intermediate_size) missing = "intermediate_size";
    if (moe && !config->moe_intermediate_size) missing = "moe_intermediate_size";
    if (moe && !config->num_experts_per_tok) missing = "num_experts_per_tok";
    if (missing)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s is missing, but there are %s layers",
                           missing, !strcmp(missing, "intermediate_size") ? "dense" : "MoE");
    if (config->num_experts_per_tok > config->n_routed_experts)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_experts_per_tok %" PRId64 " is more than n_routed_experts %" PRId64,
                           config->num_experts_per_tok, config->n_routed_experts);
    int64_t shared_width = config->n_shared_experts * config->moe_intermediate_size;
    if (shared_width > CONFIG_DIMENSION_MAX)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_shared_experts times moe_intermediate_size is %" PRId64
                           ", more than %d",
                           shared_width, CONFIG_DIMENSION_MAX);
    return DSMOE_OK;
}

/* Counts every layer as both dense and MoE. That is too much, but the limit is far above any model. */
static dsmoe_status check_parameters(const dsmoe_config *config, dsmoe_error *error)
{
    double hidden = (double)config->hidden_size;
    double n_experts = (double)config->n_routed_experts + (double)config->n_shared_experts;
    double width = (double)config->intermediate_size + 1 +
                   n_experts * ((double)config->moe_intermediate_size + 1);
    double heads = (double)config->num_attention_heads;
    double latent = (double)config->kv_lora_rank + (double)config->q_lora_rank + 1;
    double per_head = (double)config->qk_nope_head_dim + (double)config->qk_rope_head_dim +
                      (double)config->v_head_dim;
    double layer = hidden * (4 * (hidden + 1) + 2 + 3 * width) +
                   (hidden + latent) * (2 * heads * per_head + latent);
    double parameters =
        layer * (double)config->num_hidden_layers + hidden * (2 * (double)config->vocab_size + 1);
    if (parameters < 0x1p58) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "num_hidden_layers, hidden_size and the experts together make a model of"
                       " more than 2^58 parameters");
}

/* Checks the enums that stand for names in config.json. */
static dsmoe_status check_choices(const dsmoe_config *c, dsmoe_error *error)
{
    const struct {
        const char *key;
        int value, count;
    } choices[] = {{"model_type", (int)c->model_type, CONFIG_FAMILIES},
                   {"scoring_func", (int)c->scoring_func, 2},
                   {"topk_method", (int)c->topk_method, CONFIG_TOPK_METHODS}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].value < 0 || choices[i].value >= choices[i].count)
            return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %d, outside 0 to %d",
                               choices[i].key, choices[i].value, choices[i].count - 1);
    return DSMOE_OK;
}

dsmoe_status config_check(const dsmoe_config *config, dsmoe_error *error)
{
    STATUS_TRY(check_choices(config, error));
    STATUS_TRY(keys_check(config_keys.keys, config_keys.n_keys, config, error));
    STATUS_TRY(check_attention(config, error));
    STATUS_TRY(check_rope_scaling(config, error));
    STATUS_TRY(check_token_id("bos_token_id", config->bos_token_id, config, error));
    STATUS_TRY(check_token_id("eos_token_id", config->eos_token_id, config, error));
    STATUS_TRY(check_layers(config, error));
    STATUS_TRY(check_groups(config, error));
    return check_parameters(config, error);
}

/* sizes.c - changes the sizes of a configuration. */
#include "base/status.h"
#include "model/config.h"

dsmoe_model_sizes dsmoe_model_sizes_default(void)
{
    return (dsmoe_model_sizes){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
}

/* Refuses sizes of latent attention for a model that does not have it. */
static dsmoe_status check_latent(const dsmoe_config *c, const dsmoe_model_sizes *sizes,
                                 dsmoe_error *error)
{
    bool given = sizes->kv_lora_rank >= 0 || sizes->q_lora_rank >= 0 ||
                 sizes->qk_nope_head_dim >= 0 || sizes->qk_rope_head_dim >= 0 ||
                 sizes->v_head_dim >= 0;
    if (config_is_latent(c) || !given) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_CONFIG,
        "kv_lora_rank, q_lora_rank and the widths of heads belong to latent attention,"
        " which model_type \"%s\" does not have",
        config_model_type(c));
}

/* Refuses sizes of layers that the model does not have. */
static dsmoe_status check_effect(const dsmoe_config *c, const dsmoe_model_sizes *sizes,
                                 dsmoe_error *error)
{
    bool of_experts = sizes->n_shared_experts > 0 || sizes->num_experts_per_tok > 0 ||
                      sizes->moe_intermediate_size > 0 || sizes->first_k_dense_replace > 0;
    if (c->n_routed_experts == 0 && of_experts)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_routed_experts is 0: a dense model takes no other expert sizes");
    int64_t n_moe = config_moe_layers(c, c->num_hidden_layers);
    if (n_moe == 0 && c->n_routed_experts > 0 && (of_experts || sizes->n_routed_experts > 0))
        return status_fail(
            error, DSMOE_ERROR_CONFIG,
            "no layer is left for experts, as all of them are dense: give fewer dense "
            "layers, or no experts");
    if (n_moe == c->num_hidden_layers && sizes->intermediate_size >= 0)
        return status_fail(
            error, DSMOE_ERROR_CONFIG,
            "intermediate_size is the width of dense layers, and there are none: ask "
            "for dense layers as well");
    return DSMOE_OK;
}

dsmoe_status dsmoe_config_resize(dsmoe_config *config, const dsmoe_model_sizes *sizes,
                                 dsmoe_error *error)
{
    if (!config || !sizes)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no configuration or no sizes given");
    dsmoe_config c = *config;
#define TAKE(name)                                                                                 \
    if (sizes->name >= 0) c.name = sizes->name
    TAKE(num_hidden_layers);
    TAKE(hidden_size);
    TAKE(num_attention_heads);
    if (config->num_key_value_heads == config->num_attention_heads)
        c.num_key_value_heads = c.num_attention_heads;
    TAKE(num_key_value_heads);
    TAKE(moe_intermediate_size);
    TAKE(intermediate_size);
    TAKE(n_routed_experts);
    TAKE(n_shared_experts);
    TAKE(num_experts_per_tok);
    TAKE(first_k_dense_replace);
    STATUS_TRY(check_latent(&c, sizes, error));
    if (config_is_latent(&c)) {
        TAKE(kv_lora_rank);
        TAKE(q_lora_rank);
        TAKE(qk_nope_head_dim);
        TAKE(qk_rope_head_dim);
        TAKE(v_head_dim);
    }
#undef TAKE
    if (c.n_routed_experts == 0) c.n_shared_experts = c.num_experts_per_tok = 0;
    STATUS_TRY(config_check(&c, error));
    STATUS_TRY(check_effect(&c, sizes, error));
    *config = c;
    return DSMOE_OK;
}

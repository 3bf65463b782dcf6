/* model_plan.c - the parameters of a configuration, part by part, and what training on a sequence costs. */
#include <inttypes.h>

#include "base/status.h"
#include "model/config.h"

/* Weights of one layer's latent attention, without its norms. */
static int64_t latent_attention(const dsmoe_config *c)
{
    int64_t hidden = c->hidden_size, heads = c->num_attention_heads, rank = c->q_lora_rank;
    int64_t q_size = heads * config_head_dim(c);
    int64_t queries = rank > 0 ? rank * (hidden + q_size) : hidden * q_size;
    return queries + hidden * (c->kv_lora_rank + c->qk_rope_head_dim) +
           heads * (c->qk_nope_head_dim + c->v_head_dim) * c->kv_lora_rank +
           hidden * heads * c->v_head_dim;
}

dsmoe_status dsmoe_model_plan_make(const dsmoe_config *config, int64_t n_tokens,
                                   dsmoe_model_plan *plan, dsmoe_error *error)
{
    *plan = (dsmoe_model_plan){0};
    STATUS_TRY(config_check(config, error)); /* after this, no sum or product overflows */
    if (n_tokens < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a sequence of %" PRId64 " tokens must have at least one", n_tokens);
    int64_t hidden = config->hidden_size, layers = config->num_hidden_layers;
    int64_t kv_size = hidden / config->num_attention_heads * config->num_key_value_heads;
    for (int64_t layer = 0; layer < layers; layer++)
        plan->n_moe_layers += dsmoe_config_layer_is_moe(config, layer);
    int64_t expert = 3 * hidden * config->moe_intermediate_size;
    int64_t biases = config->attention_bias ? 2 * (hidden + kv_size) : 0;
    bool is_corrected = config->topk_method == DSMOE_TOPK_NOAUX_TC;

    plan->embedding = config->vocab_size * hidden;
    plan->attention =
        layers * (config_is_latent(config) ? latent_attention(config)
                                           : 2 * hidden * (hidden + kv_size) + biases);
    plan->dense_ffn = (layers - plan->n_moe_layers) * 3 * hidden * config->intermediate_size;
    plan->routed_experts = plan->n_moe_layers * config->n_routed_experts * expert;
    plan->shared_experts = plan->n_moe_layers * config->n_shared_experts * expert;
    plan->router = plan->n_moe_layers * config->n_routed_experts * (hidden + is_corrected);
    plan->norms = (2 * layers + 1) * hidden + layers * (config->kv_lora_rank + config->q_lora_rank);
    plan->lm_head = config->tie_word_embeddings ? 0 : plan->embedding;
    plan->total = plan->embedding + plan->attention + plan->dense_ffn + plan->routed_experts +
                  plan->shared_experts + plan->router + plan->norms + plan->lm_head;
    plan->active_routed_experts = plan->n_moe_layers * config->num_experts_per_tok * expert;
    plan->active = plan->total - plan->routed_experts + plan->active_routed_experts;

    /* Looking up an embedding multiplies nothing; a tied table is multiplied once, as the head. */
    int64_t multiplied = plan->active - (config->tie_word_embeddings ? 0 : plan->embedding);
    plan->matmul_flops = 6.0 * (double)multiplied * (double)n_tokens;
    double heads = (double)config->num_attention_heads;
    double width = heads * (double)(config_head_dim(config) + config_value_dim(config));
    plan->attention_flops = 6.0 * (double)layers * width * (double)n_tokens * (double)n_tokens;
    return DSMOE_OK;
}

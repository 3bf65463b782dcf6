/* config_keys.c - the keys of config.json as tables, and the types of models. */
#include "model/config_keys.h"

#define KEY(name) #name, offsetof(dsmoe_config, name)
static const config_key common[] = {
    {KEY(vocab_size), KEY_INTEGER, KEY_REQUIRED, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(hidden_size), KEY_INTEGER, KEY_REQUIRED, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(intermediate_size), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(moe_intermediate_size), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(num_hidden_layers), KEY_INTEGER, KEY_REQUIRED, 1, CONFIG_LAYERS_MAX, 0},
    {KEY(num_attention_heads), KEY_INTEGER, KEY_REQUIRED, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(num_key_value_heads), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(n_shared_experts), KEY_INTEGER, KEY_NULLABLE, 0, CONFIG_DIMENSION_MAX, 0},
    {KEY(n_routed_experts), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(num_experts_per_tok), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(moe_layer_freq), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 1},
    {KEY(first_k_dense_replace), KEY_INTEGER, KEY_OPTIONAL, 0, CONFIG_DIMENSION_MAX, 0},
    {KEY(max_position_embeddings), KEY_INTEGER, KEY_OPTIONAL, 1, 1 << 30, 2048},
    {KEY(norm_topk_prob), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(seq_aux), KEY_FLAG, KEY_OPTIONAL, 0, 1, true},
    {KEY(attention_bias), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(tie_word_embeddings), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(aux_loss_alpha), KEY_NUMBER, KEY_OPTIONAL, 0, 1e6, 0.001},
    {KEY(initializer_range), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 0.02},
    {KEY(rms_norm_eps), KEY_NUMBER, KEY_OPTIONAL, 0, 1, 1e-6},
    {KEY(rope_theta), KEY_NUMBER, KEY_OPTIONAL, 1, 1e12, 10000},
};

static const config_key latent[] = {
    {KEY(kv_lora_rank), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 512},
    {KEY(qk_nope_head_dim), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 128},
    {KEY(qk_rope_head_dim), KEY_INTEGER, KEY_OPTIONAL, 2, CONFIG_DIMENSION_MAX, 64},
    {KEY(v_head_dim), KEY_INTEGER, KEY_OPTIONAL, 1, CONFIG_DIMENSION_MAX, 128},
    {KEY(q_lora_rank), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(n_group), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(topk_group), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 0},
    {KEY(routed_scaling_factor), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 1},
};

/* Not in the public configuration: a scale that the paper's comparison needs to treat a single expert
 * fairly. */
static const config_key first[] = {
    {KEY(routed_scaling_factor), KEY_NUMBER, KEY_OPTIONAL, 0, 1e6, 0},
};

static const config_key yarn[] = {
    {KEY(original_max_position_embeddings), KEY_INTEGER, KEY_OPTIONAL, 1, 1 << 30, 4096},
    {KEY(beta_fast), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 32},
    {KEY(beta_slow), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 1},
    {KEY(mscale), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 1},
    {KEY(mscale_all_dim), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 0},
};
/* Keys whose defaults in V2 or V3 differ from the table above. */
static const config_key v2[] = {
    {KEY(q_lora_rank), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 1536},
};
static const config_key v3[] = {
    {KEY(q_lora_rank), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 1536},
    {KEY(norm_topk_prob), KEY_FLAG, KEY_OPTIONAL, 0, 1, true},
    {KEY(routed_scaling_factor), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 2.5},
    {KEY(n_group), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 8},
    {KEY(topk_group), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 4},
    {KEY(n_routed_experts), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 256},
    {KEY(n_shared_experts), KEY_INTEGER, KEY_NULLABLE, 0, CONFIG_DIMENSION_MAX, 1},
    {KEY(num_experts_per_tok), KEY_INTEGER, KEY_NULLABLE, 1, CONFIG_DIMENSION_MAX, 8},
    {KEY(first_k_dense_replace), KEY_INTEGER, KEY_OPTIONAL, 0, CONFIG_DIMENSION_MAX, 3},
    {KEY(max_position_embeddings), KEY_INTEGER, KEY_OPTIONAL, 1, 1 << 30, 4096},
};
#undef KEY

#define TABLE(array)                                                                               \
    {                                                                                              \
        array, sizeof array / sizeof *array                                                        \
    }
const config_table config_keys = TABLE(common);
const config_table config_latent_keys = TABLE(latent);
const config_table config_first_keys = TABLE(first);
const config_table config_yarn_keys = TABLE(yarn);

const char *const config_topk_methods[CONFIG_TOPK_METHODS] = {
    [DSMOE_TOPK_GREEDY] = "greedy",
    [DSMOE_TOPK_GROUP_LIMITED_GREEDY] = "group_limited_greedy",
    [DSMOE_TOPK_NOAUX_TC] = "noaux_tc",
};
const char *const config_scoring_funcs[] = {
    [DSMOE_SCORING_SOFTMAX] = "softmax", [DSMOE_SCORING_SIGMOID] = "sigmoid"};

const config_family config_families[CONFIG_FAMILIES] = {
    [DSMOE_DEEPSEEK] = {.model_type = "deepseek",
                        .architecture = "DeepseekForCausalLM",
                        .has_topk_method = {[DSMOE_TOPK_GREEDY] = true}},
    [DSMOE_DEEPSEEK_V2] =
        {.model_type = "deepseek_v2",
         .architecture = "DeepseekV2ForCausalLM",
         .has_topk_method = {[DSMOE_TOPK_GREEDY] = true, [DSMOE_TOPK_GROUP_LIMITED_GREEDY] = true},
         .defaults = TABLE(v2)},
    [DSMOE_DEEPSEEK_V3] = {.model_type = "deepseek_v3",
                           .architecture = "DeepseekV3ForCausalLM",
                           .scoring_func = DSMOE_SCORING_SIGMOID,
                           .has_topk_method = {[DSMOE_TOPK_NOAUX_TC] = true},
                           .topk_method = DSMOE_TOPK_NOAUX_TC,
                           .defaults = TABLE(v3)},
};

const char *config_model_type(const dsmoe_config *c)
{
    return config_families[c->model_type].model_type;
}

const char *config_architecture(const dsmoe_config *c)
{
    return config_families[c->model_type].architecture;
}

const char *config_scoring_func(const dsmoe_config *c)
{
    return config_scoring_funcs[c->scoring_func];
}

const char *config_topk_method(const dsmoe_config *c)
{
    return config_topk_methods[c->topk_method];
}

dsmoe_config config_default(void)
{
    dsmoe_config config = {.rope_scaling_factor = 1, .bos_token_id = -1, .eos_token_id = -1};
    keys_default(config_keys.keys, config_keys.n_keys, &config);
    return config;
}

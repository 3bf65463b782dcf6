/* dsmoe/config.h - the configuration of a whole model: config.json, presets, other sizes. */
#ifndef DSMOE_CONFIG_H
#define DSMOE_CONFIG_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How rotary positions are scaled so that a model can be used beyond the lengths it was trained on. */
typedef enum dsmoe_rope_scaling {
    DSMOE_ROPE_NONE = 0,
    DSMOE_ROPE_LINEAR = 1,  /* positions are divided by the factor */
    DSMOE_ROPE_DYNAMIC = 2, /* the base grows once a sequence exceeds max_position_embeddings */
    DSMOE_ROPE_YARN = 3,    /* as in DeepSeek-V2 and V3 */
} dsmoe_rope_scaling;

/* The family of a model. V2 and V3 have the paper's experts, but latent attention and other gates. */
typedef enum dsmoe_model_type {
    DSMOE_DEEPSEEK = 0,    /* the paper's */
    DSMOE_DEEPSEEK_V2 = 1, /* DeepSeek-V2, V2-Lite, Coder-V2-Lite */
    DSMOE_DEEPSEEK_V3 = 2, /* DeepSeek-V3, Moonlight */
} dsmoe_model_type;
typedef enum dsmoe_scoring_func {
    DSMOE_SCORING_SOFTMAX = 0,
    DSMOE_SCORING_SIGMOID = 1
} dsmoe_scoring_func;
typedef enum dsmoe_topk_method {
    DSMOE_TOPK_GREEDY = 0,
    DSMOE_TOPK_GROUP_LIMITED_GREEDY = 1, /* chooses groups by their best expert */
    /* experts by score plus a bias that follows the load; groups by the sum of their two best */
    DSMOE_TOPK_NOAUX_TC = 2,
} dsmoe_topk_method;

/* config.json of a DeepSeekMoE model. */
typedef struct dsmoe_config {
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t intermediate_size; /* width of the dense layers' FFN */
    int64_t moe_intermediate_size;
    int64_t num_hidden_layers;
    int64_t num_attention_heads;
    int64_t num_key_value_heads;
    int64_t n_shared_experts;    /* 0: none */
    int64_t n_routed_experts;    /* 0: every layer is dense */
    int64_t num_experts_per_tok; /* 0 when every layer is dense */
    int64_t moe_layer_freq;
    int64_t first_k_dense_replace;
    int64_t max_position_embeddings;
    bool norm_topk_prob;
    bool seq_aux;
    bool attention_bias;
    bool tie_word_embeddings;
    double aux_loss_alpha;
    double initializer_range;
    double rms_norm_eps;
    double rope_theta;
    dsmoe_rope_scaling rope_scaling;
    double rope_scaling_factor; /* 1 without scaling */
    int64_t bos_token_id;       /* -1: none */
    int64_t eos_token_id;       /* -1: none; the first one if the file lists several */
    /* The rest is for V2 and V3, and is 0 in the paper's model. */
    dsmoe_model_type model_type;
    int64_t q_lora_rank; /* 0: queries are not compressed (null in config.json) */
    /* Width of the latent that keys and values are computed from; 0: attention is not latent. */
    int64_t kv_lora_rank;
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    dsmoe_scoring_func scoring_func;
    dsmoe_topk_method topk_method;
    int64_t n_group, topk_group; /* 0: experts are not grouped */
    /* 0: none. The paper's model may have one here, but other programs do not know it. */
    double routed_scaling_factor;
    int64_t original_max_position_embeddings; /* this and the next line: YaRN */
    double beta_fast, beta_slow, mscale, mscale_all_dim;
} dsmoe_config;

/* Reads and checks a config.json; the message names the file and the offending key. */
DSMOE_API dsmoe_status dsmoe_config_read(const char *path, dsmoe_config *config,
                                         dsmoe_error *error);
/* The configuration of a preset: "tiny" (a small model for experiments), "2b" and "16b" (the paper's),
 * "tiny-v2" and "tiny-v3" (tiny with the attention and the gates of V2 and V3), "v2-lite", "moonlight". */
DSMOE_API dsmoe_status dsmoe_config_preset(const char *name, dsmoe_config *config,
                                           dsmoe_error *error);
/* Sizes that replace those of a configuration; -1: keep the configuration's. */
typedef struct dsmoe_model_sizes {
    int64_t num_hidden_layers, hidden_size;
    int64_t num_attention_heads, num_key_value_heads; /* the second follows if they were equal */
    int64_t moe_intermediate_size, intermediate_size;
    int64_t n_routed_experts, n_shared_experts, num_experts_per_tok; /* 0 routed experts: dense */
    int64_t first_k_dense_replace;
    /* Latent attention. q_lora_rank 0: queries are not compressed. */
    int64_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
} dsmoe_model_sizes;
DSMOE_API dsmoe_model_sizes dsmoe_model_sizes_default(void); /* all -1 */
/* Changes sizes of a configuration. Sizes that make no model are an error, which names the key; the
 * configuration is then unchanged. */
DSMOE_API dsmoe_status dsmoe_config_resize(dsmoe_config *config, const dsmoe_model_sizes *sizes,
                                           dsmoe_error *error);
DSMOE_API bool dsmoe_config_layer_is_moe(const dsmoe_config *config, int64_t layer);
/* The configuration of the MoE layers of a model. */
DSMOE_API dsmoe_layer_config dsmoe_config_layer(const dsmoe_config *config);

#ifdef __cplusplus
}
#endif
#endif

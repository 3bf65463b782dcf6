/* config.h - what src/model needs of a configuration beyond the public functions. */
#ifndef DSMOE_MODEL_CONFIG_H
#define DSMOE_MODEL_CONFIG_H

#include <stddef.h>

#include "dsmoe.h"

/* Whether keys and values are made from a latent. */
static inline bool config_is_latent(const dsmoe_config *config) { return config->kv_lora_rank > 0; }

/* Width of an attention head's query and key. */
static inline int64_t config_head_dim(const dsmoe_config *config)
{
    return config_is_latent(config) ? config->qk_nope_head_dim + config->qk_rope_head_dim
                                    : config->hidden_size / config->num_attention_heads;
}

/* Width of a head's value. */
static inline int64_t config_value_dim(const dsmoe_config *config)
{
    return config_is_latent(config) ? config->v_head_dim : config_head_dim(config);
}

/* Numbers of a head that rotary embeddings rotate: the last ones. */
static inline int64_t config_rope_dim(const dsmoe_config *config)
{
    return config_is_latent(config) ? config->qk_rope_head_dim : config_head_dim(config);
}

/* eps of the norms inside latent attention: the public code's own, whatever rms_norm_eps is. */
#define CONFIG_LATENT_EPS 1e-6f

/* The names that config.json has for them. */
const char *config_model_type(const dsmoe_config *config);
const char *config_architecture(const dsmoe_config *config);
const char *config_scoring_func(const dsmoe_config *config);
const char *config_topk_method(const dsmoe_config *config);

/* The number of MoE layers among the first n_layers. */
static inline int64_t config_moe_layers(const dsmoe_config *config, int64_t n_layers)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_layers; i++) n += dsmoe_config_layer_is_moe(config, i);
    return n;
}

/* The public defaults; 0 for sizes, which have none. */
dsmoe_config config_default(void);

/* Whether a model of this configuration can exist; the message names the offending key. Afterwards
 * every dimension is positive where it is used, divisions are exact, and all the parameters
 * together are fewer than 2^58, so that sums and products of them fit int64. */
dsmoe_status config_check(const dsmoe_config *config, dsmoe_error *error);

/* dsmoe_config_read over text in memory; `source` names it in messages. */
dsmoe_status config_parse(const char *text, size_t length, const char *source, dsmoe_config *config,
                          dsmoe_error *error);

#endif

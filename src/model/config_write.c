/* config_write.c - writes config.json and generation_config.json, with keys nearly in alphabetical order. */
#include "model/config_write.h"

#include <inttypes.h>
#include <stdio.h>

#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "model/config.h"

/* The released model has its PyTorch code next to the weights. A folder written here does not; it names the
 * place of that code, as the public library does when it saves such a model. */
static const struct public_code {
    const char *place, *file, *class;
} public_codes[] = {
    [DSMOE_DEEPSEEK] = {"deepseek-ai/deepseek-moe-16b-base", "deepseek", "Deepseek"},
    [DSMOE_DEEPSEEK_V2] = {"deepseek-ai/DeepSeek-V2-Lite", "deepseek", "DeepseekV2"},
    [DSMOE_DEEPSEEK_V3] = {"deepseek-ai/DeepSeek-V3", "deepseek", "DeepseekV3"},
};

/* The version whose layout and defaults these files follow. */
static const char transformers_version[] = "4.36.0";

static void put_key(FILE *text, const char *key) { fprintf(text, ",\n  \"%s\": ", key); }

static void put_integer(FILE *text, const char *key, int64_t value)
{
    put_key(text, key);
    fprintf(text, "%" PRId64, value);
}

/* Writes null if the model does not have the value. */
static void put_optional(FILE *text, const char *key, int64_t value, int64_t none)
{
    if (value != none) {
        put_integer(text, key, value);
        return;
    }
    put_key(text, key);
    fputs("null", text);
}

static void put_number(FILE *text, const char *key, double value)
{
    put_key(text, key);
    json_write_number(text, value);
}

static void put_flag(FILE *text, const char *key, bool value)
{
    put_key(text, key);
    fputs(value ? "true" : "false", text);
}

static void put_word(FILE *text, const char *key, const char *value)
{
    put_key(text, key);
    json_write_string(text, value);
}

static void put_yarn(FILE *text, const dsmoe_config *c)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"beta_fast", c->beta_fast},
                   {"beta_slow", c->beta_slow},
                   {"mscale", c->mscale},
                   {"mscale_all_dim", c->mscale_all_dim}};
    for (int i = 0; i < 4; i++) {
        fprintf(text, ",\n    \"%s\": ", numbers[i].key);
        json_write_number(text, numbers[i].value);
    }
    fprintf(text, ",\n    \"original_max_position_embeddings\": %" PRId64,
            c->original_max_position_embeddings);
}

static void put_rope_scaling(FILE *text, const dsmoe_config *config)
{
    put_key(text, "rope_scaling");
    if (config->rope_scaling == DSMOE_ROPE_NONE) {
        fputs("null", text);
        return;
    }
    fputs("{\n    \"factor\": ", text);
    json_write_number(text, config->rope_scaling_factor);
    if (config->rope_scaling == DSMOE_ROPE_YARN) put_yarn(text, config);
    fprintf(text, ",\n    \"type\": \"%s\"\n  }",
            config->rope_scaling == DSMOE_ROPE_LINEAR    ? "linear"
            : config->rope_scaling == DSMOE_ROPE_DYNAMIC ? "dynamic"
                                                         : "yarn");
}

static const char *torch_dtype(dsmoe_dtype dtype)
{
    switch (dtype) {
    case DSMOE_F32: return "float32";
    case DSMOE_F16: return "float16";
    case DSMOE_BF16: return "bfloat16";
    default: break;
    }
    return "float32";
}

static void put_sizes(FILE *text, const dsmoe_config *c)
{
    if (c->aux_loss_alpha != 0.001) put_number(text, "aux_loss_alpha", c->aux_loss_alpha);
    put_optional(text, "bos_token_id", c->bos_token_id, -1);
    put_optional(text, "eos_token_id", c->eos_token_id, -1);
    put_integer(text, "first_k_dense_replace", c->first_k_dense_replace);
    put_word(text, "hidden_act", "silu");
    put_integer(text, "hidden_size", c->hidden_size);
    put_number(text, "initializer_range", c->initializer_range);
    /* The width of layers that the model does not have is left out. */
    if (c->intermediate_size) put_integer(text, "intermediate_size", c->intermediate_size);
    put_integer(text, "max_position_embeddings", c->max_position_embeddings);
    if (config_is_latent(c)) put_integer(text, "kv_lora_rank", c->kv_lora_rank);
    put_word(text, "model_type", config_model_type(c));
    if (c->moe_intermediate_size)
        put_integer(text, "moe_intermediate_size", c->moe_intermediate_size);
    put_integer(text, "moe_layer_freq", c->moe_layer_freq);
    put_optional(text, "n_routed_experts", c->n_routed_experts, 0);
    put_optional(text, "n_shared_experts", c->n_shared_experts, 0);
    put_flag(text, "norm_topk_prob", c->norm_topk_prob);
    put_integer(text, "num_attention_heads", c->num_attention_heads);
    put_optional(text, "num_experts_per_tok", c->num_experts_per_tok, 0);
    put_integer(text, "num_hidden_layers", c->num_hidden_layers);
    put_integer(text, "num_key_value_heads", c->num_key_value_heads);
}

/* Writes the additional keys of V2 and V3. */
static void put_latent(FILE *text, const dsmoe_config *c)
{
    put_integer(text, "n_group",
                c->n_group ? c->n_group : 1); /* V3's public code expects a number */
    put_optional(text, "q_lora_rank", c->q_lora_rank, 0);
    put_integer(text, "qk_nope_head_dim", c->qk_nope_head_dim);
    put_integer(text, "qk_rope_head_dim", c->qk_rope_head_dim);
    put_number(text, "routed_scaling_factor", c->routed_scaling_factor);
    put_integer(text, "topk_group", c->topk_group ? c->topk_group : 1);
    put_word(text, "topk_method", config_topk_method(c));
    put_integer(text, "v_head_dim", c->v_head_dim);
}

static void put_code(FILE *text, const dsmoe_config *c)
{
    const struct public_code *p = &public_codes[c->model_type];
    put_key(text, "auto_map");
    fprintf(text,
            "{\n    \"AutoConfig\": \"%s--configuration_%s.%sConfig\",\n"
            "    \"AutoModel\": \"%s--modeling_%s.%sModel\",\n"
            "    \"AutoModelForCausalLM\": \"%s--modeling_%s.%sForCausalLM\"\n  }",
            p->place, p->file, p->class, p->place, p->file, p->class, p->place, p->file, p->class);
}

typedef struct typed_config {
    const dsmoe_config *config;
    dsmoe_dtype dtype;
} typed_config;

static void put_config(FILE *text, const void *context)
{
    const typed_config *typed = context;
    const dsmoe_config *c = typed->config;
    fprintf(text, "{\n  \"architectures\": [\n    \"%s\"\n  ]", config_architecture(c));
    put_flag(text, "attention_bias", c->attention_bias);
    put_key(text, "attention_dropout");
    fputs("0.0", text);
    put_code(text, c);
    put_sizes(text, c);
    if (config_is_latent(c))
        put_latent(text, c);
    else if (c->routed_scaling_factor != 0)
        put_number(text, "routed_scaling_factor", c->routed_scaling_factor);
    put_integer(text, "pretraining_tp", 1);
    put_number(text, "rms_norm_eps", c->rms_norm_eps);
    put_rope_scaling(text, c);
    put_number(text, "rope_theta", c->rope_theta);
    put_word(text, "scoring_func", config_scoring_func(c));
    if (!c->seq_aux) put_flag(text, "seq_aux", c->seq_aux);
    put_flag(text, "tie_word_embeddings", c->tie_word_embeddings);
    put_word(text, "torch_dtype", torch_dtype(typed->dtype));
    put_word(text, "transformers_version", transformers_version);
    put_flag(text, "use_cache", true);
    put_integer(text, "vocab_size", c->vocab_size);
    fputs("\n}\n", text);
}

static void put_generation_config(FILE *text, const void *context)
{
    const dsmoe_config *c = context;
    fputs("{\n  \"_from_model_config\": true", text);
    if (c->bos_token_id >= 0) put_integer(text, "bos_token_id", c->bos_token_id);
    if (c->eos_token_id >= 0) put_integer(text, "eos_token_id", c->eos_token_id);
    put_word(text, "transformers_version", transformers_version);
    fputs("\n}\n", text);
}

dsmoe_status config_write(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype,
                          dsmoe_error *error)
{
    return config_write_as(folder, "config.json", config, dtype, error);
}

dsmoe_status config_write_as(const char *folder, const char *name, const dsmoe_config *config,
                             dsmoe_dtype dtype, dsmoe_error *error)
{
    typed_config typed = {config, dtype};
    return partial_file_write_text(folder, name, put_config, &typed, error);
}

dsmoe_status generation_config_write(const char *folder, const dsmoe_config *config,
                                     dsmoe_error *error)
{
    return partial_file_write_text(folder, "generation_config.json", put_generation_config, config,
                                   error);
}

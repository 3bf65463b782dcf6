/* preset.c - configurations by name.
 *
 * 16b is the released model as its config.json has it. 2b is the model of the paper's validation
 * experiments: its FFN of 8/3 hidden_size, here rounded up to 3456, split in four. tiny has the
 * same shape, small enough for any machine; tiny-v2 and tiny-v3 have its size with the attention and
 * the gate of V2-Lite and of V3 (in groups). v2-lite and moonlight are the models of these names. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static const struct {
    const char *name;
    dsmoe_config config;
} presets[] = {
    {"tiny",
     {.vocab_size = 8192,
      .hidden_size = 128,
      .intermediate_size = 384,
      .moe_intermediate_size = 96,
      .num_hidden_layers = 4,
      .num_attention_heads = 4,
      .num_key_value_heads = 4,
      .n_shared_experts = 1,
      .n_routed_experts = 63,
      .num_experts_per_tok = 7,
      .max_position_embeddings = 512,
      .aux_loss_alpha = 0.01,
      .initializer_range = 0.02,
      .bos_token_id = -1,
      .eos_token_id = -1}},
    {"2b",
     {.vocab_size = 8192,
      .hidden_size = 1280,
      .intermediate_size = 3456,
      .moe_intermediate_size = 864,
      .num_hidden_layers = 9,
      .num_attention_heads = 10,
      .num_key_value_heads = 10,
      .n_shared_experts = 1,
      .n_routed_experts = 63,
      .num_experts_per_tok = 7,
      .max_position_embeddings = 2048,
      .aux_loss_alpha = 0.01,
      .initializer_range = 0.006,
      .bos_token_id = -1,
      .eos_token_id = -1}},
    {"16b",
     {.vocab_size = 102400,
      .hidden_size = 2048,
      .intermediate_size = 10944,
      .moe_intermediate_size = 1408,
      .num_hidden_layers = 28,
      .num_attention_heads = 16,
      .num_key_value_heads = 16,
      .n_shared_experts = 2,
      .n_routed_experts = 64,
      .num_experts_per_tok = 6,
      .first_k_dense_replace = 1,
      .max_position_embeddings = 4096,
      .aux_loss_alpha = 0.001,
      .initializer_range = 0.02,
      .bos_token_id = 100000,
      .eos_token_id = 100001}},
    {"tiny-v2",
     {.vocab_size = 8192,
      .hidden_size = 128,
      .intermediate_size = 384,
      .moe_intermediate_size = 96,
      .num_hidden_layers = 4,
      .num_attention_heads = 4,
      .num_key_value_heads = 4,
      .n_shared_experts = 1,
      .n_routed_experts = 64,
      .num_experts_per_tok = 6,
      .first_k_dense_replace = 1,
      .max_position_embeddings = 2048,
      .aux_loss_alpha = 0.01,
      .initializer_range = 0.02,
      .bos_token_id = -1,
      .eos_token_id = -1,
      .model_type = DSMOE_DEEPSEEK_V2,
      .kv_lora_rank = 64,
      .qk_nope_head_dim = 32,
      .qk_rope_head_dim = 16,
      .v_head_dim = 32,
      .routed_scaling_factor = 1,
      .rope_scaling = DSMOE_ROPE_YARN,
      .rope_scaling_factor = 4,
      .original_max_position_embeddings = 512,
      .beta_fast = 32,
      .beta_slow = 1,
      .mscale = 0.707,
      .mscale_all_dim = 0.707}},
    {"tiny-v3",
     {.vocab_size = 8192,
      .hidden_size = 128,
      .intermediate_size = 384,
      .moe_intermediate_size = 96,
      .num_hidden_layers = 4,
      .num_attention_heads = 4,
      .num_key_value_heads = 4,
      .n_shared_experts = 1,
      .n_routed_experts = 64,
      .num_experts_per_tok = 6,
      .first_k_dense_replace = 1,
      .max_position_embeddings = 512,
      .aux_loss_alpha = 0.0001,
      .initializer_range = 0.02,
      .bos_token_id = -1,
      .eos_token_id = -1,
      .norm_topk_prob = true,
      .model_type = DSMOE_DEEPSEEK_V3,
      .q_lora_rank = 64,
      .kv_lora_rank = 64,
      .qk_nope_head_dim = 32,
      .qk_rope_head_dim = 16,
      .v_head_dim = 32,
      .scoring_func = DSMOE_SCORING_SIGMOID,
      .topk_method = DSMOE_TOPK_NOAUX_TC,
      .n_group = 8,
      .topk_group = 4,
      .routed_scaling_factor = 2.5}},
    {"v2-lite",
     {.vocab_size = 102400,
      .hidden_size = 2048,
      .intermediate_size = 10944,
      .moe_intermediate_size = 1408,
      .num_hidden_layers = 27,
      .num_attention_heads = 16,
      .num_key_value_heads = 16,
      .n_shared_experts = 2,
      .n_routed_experts = 64,
      .num_experts_per_tok = 6,
      .first_k_dense_replace = 1,
      .max_position_embeddings = 163840,
      .aux_loss_alpha = 0.001,
      .initializer_range = 0.02,
      .bos_token_id = 100000,
      .eos_token_id = 100001,
      .model_type = DSMOE_DEEPSEEK_V2,
      .kv_lora_rank = 512,
      .qk_nope_head_dim = 128,
      .qk_rope_head_dim = 64,
      .v_head_dim = 128,
      .routed_scaling_factor = 1,
      .rope_scaling = DSMOE_ROPE_YARN,
      .rope_scaling_factor = 40,
      .original_max_position_embeddings = 4096,
      .beta_fast = 32,
      .beta_slow = 1,
      .mscale = 0.707,
      .mscale_all_dim = 0.707}},
    {"moonlight",
     {.vocab_size = 163840,
      .hidden_size = 2048,
      .intermediate_size = 11264,
      .moe_intermediate_size = 1408,
      .num_hidden_layers = 27,
      .num_attention_heads = 16,
      .num_key_value_heads = 16,
      .n_shared_experts = 2,
      .n_routed_experts = 64,
      .num_experts_per_tok = 6,
      .first_k_dense_replace = 1,
      .max_position_embeddings = 8192,
      .aux_loss_alpha = 0.001,
      .initializer_range = 0.02,
      .rms_norm_eps = 1e-5,
      .rope_theta = 50000,
      .bos_token_id = 163584,
      .eos_token_id = 163585,
      .norm_topk_prob = true,
      .model_type = DSMOE_DEEPSEEK_V3,
      .kv_lora_rank = 512,
      .qk_nope_head_dim = 128,
      .qk_rope_head_dim = 64,
      .v_head_dim = 128,
      .scoring_func = DSMOE_SCORING_SIGMOID,
      .topk_method = DSMOE_TOPK_NOAUX_TC,
      .routed_scaling_factor = 2.446}},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* The public defaults. */
static void set_common(dsmoe_config *config)
{
    config->moe_layer_freq = 1;
    config->seq_aux = true;
    if (config->rms_norm_eps == 0) config->rms_norm_eps = 1e-6;
    if (config->rope_theta == 0) config->rope_theta = 10000;
    if (config->rope_scaling_factor == 0) config->rope_scaling_factor = 1;
}

dsmoe_status dsmoe_config_preset(const char *name, dsmoe_config *config, dsmoe_error *error)
{
    if (!name || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no preset or no place for it given");
    for (int i = 0; i < N_PRESETS; i++) {
        if (strcmp(name, presets[i].name)) continue;
        *config = presets[i].config;
        set_common(config);
        return DSMOE_OK;
    }
    char list[128] = "";
    for (int i = 0, used = 0; i < N_PRESETS; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s",
                         i == 0              ? ""
                         : i < N_PRESETS - 1 ? ", "
                                             : " and ",
                         presets[i].name);
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no preset '%.64s', only %s", name,
                       list);
}

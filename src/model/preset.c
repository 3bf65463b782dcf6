/* preset.c - configurations by name: a row of sizes, and a function for differences from the paper's model.
 *
 * 16b is the released model as its config.json has it. 2b is the model of the paper's validation
 * experiments: its FFN of 8/3 hidden_size, here rounded up to 3456, split in four. tiny has the
 * same shape, small enough for any machine; tiny-v2 and tiny-v3 have its size with the attention and
 * the gate of V2-Lite and of V3 (in groups). v2-lite and moonlight are the models of these names. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* What the presets have in common: the public defaults. */
static const dsmoe_config common = {
    .moe_layer_freq = 1,
    .seq_aux = true,
    .initializer_range = 0.02,
    .rms_norm_eps = 1e-6,
    .rope_theta = 10000,
    .rope_scaling_factor = 1,
};

/* Latent attention; values are as wide as the part of keys without positions. */
static void set_latent(dsmoe_config *config, int64_t kv_lora_rank, int64_t head, int64_t rope)
{
    config->kv_lora_rank = kv_lora_rank;
    config->qk_nope_head_dim = config->v_head_dim = head;
    config->qk_rope_head_dim = rope;
}

/* V2-Lite: the paper's gate; a context that is `factor` times the trained one. */
static void set_v2(dsmoe_config *config, double factor)
{
    config->model_type = DSMOE_DEEPSEEK_V2;
    config->routed_scaling_factor = 1;
    config->rope_scaling = DSMOE_ROPE_YARN;
    config->rope_scaling_factor = factor;
    config->original_max_position_embeddings =
        (int64_t)((double)config->max_position_embeddings / factor);
    config->beta_fast = 32;
    config->beta_slow = 1;
    config->mscale = config->mscale_all_dim = 0.707;
}

/* V3: a gate of sigmoids, balanced by a bias. */
static void set_v3(dsmoe_config *config, double routed_scaling_factor)
{
    config->model_type = DSMOE_DEEPSEEK_V3;
    config->norm_topk_prob = true;
    config->scoring_func = DSMOE_SCORING_SIGMOID;
    config->topk_method = DSMOE_TOPK_NOAUX_TC;
    config->routed_scaling_factor = routed_scaling_factor;
}

static void set_2b(dsmoe_config *config) { config->initializer_range = 0.006; }

static void set_tiny_v2(dsmoe_config *config)
{
    set_v2(config, 4);
    set_latent(config, 64, 32, 16);
}

static void set_tiny_v3(dsmoe_config *config)
{
    set_v3(config, 2.5);
    set_latent(config, 64, 32, 16);
    config->q_lora_rank = 64;
    config->n_group = 8;
    config->topk_group = 4;
}

static void set_v2_lite(dsmoe_config *config)
{
    set_v2(config, 40);
    set_latent(config, 512, 128, 64);
}

static void set_moonlight(dsmoe_config *config)
{
    set_v3(config, 2.446);
    set_latent(config, 512, 128, 64);
    config->rms_norm_eps = 1e-5;
    config->rope_theta = 50000;
}

static const struct preset {
    const char *name;
    int64_t vocab_size, hidden_size, intermediate_size, moe_intermediate_size;
    int64_t num_hidden_layers, num_attention_heads;
    int64_t n_shared_experts, n_routed_experts, num_experts_per_tok, first_k_dense_replace;
    int64_t max_position_embeddings;
    double aux_loss_alpha;
    int64_t bos_token_id; /* the next id is EOS; -1: there is neither */
    void (*set)(dsmoe_config *config);
} presets[] = {
    /* clang-format off */
    /*             vocab  hidden  dense  expert layers heads shared routed top dense  context  alpha1    BOS */
    {"tiny",        8192,   128,    384,    96,     4,    4,     1,    63,  7,    0,     512,  0.01,      -1, NULL},
    {"2b",          8192,  1280,   3456,   864,     9,   10,     1,    63,  7,    0,    2048,  0.01,      -1, set_2b},
    {"16b",       102400,  2048,  10944,  1408,    28,   16,     2,    64,  6,    1,    4096, 0.001,  100000, NULL},
    {"tiny-v2",     8192,   128,    384,    96,     4,    4,     1,    64,  6,    1,    2048,  0.01,      -1, set_tiny_v2},
    {"tiny-v3",     8192,   128,    384,    96,     4,    4,     1,    64,  6,    1,     512, 0.0001,     -1, set_tiny_v3},
    {"v2-lite",   102400,  2048,  10944,  1408,    27,   16,     2,    64,  6,    1,  163840, 0.001,  100000, set_v2_lite},
    {"moonlight", 163840,  2048,  11264,  1408,    27,   16,     2,    64,  6,    1,    8192, 0.001,  163584, set_moonlight},
    /* clang-format on */
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

static dsmoe_config config_of(const struct preset *preset)
{
    dsmoe_config config = common;
    config.vocab_size = preset->vocab_size;
    config.hidden_size = preset->hidden_size;
    config.intermediate_size = preset->intermediate_size;
    config.moe_intermediate_size = preset->moe_intermediate_size;
    config.num_hidden_layers = preset->num_hidden_layers;
    config.num_attention_heads = config.num_key_value_heads = preset->num_attention_heads;
    config.n_shared_experts = preset->n_shared_experts;
    config.n_routed_experts = preset->n_routed_experts;
    config.num_experts_per_tok = preset->num_experts_per_tok;
    config.first_k_dense_replace = preset->first_k_dense_replace;
    config.max_position_embeddings = preset->max_position_embeddings;
    config.aux_loss_alpha = preset->aux_loss_alpha;
    config.bos_token_id = preset->bos_token_id;
    config.eos_token_id = preset->bos_token_id < 0 ? -1 : preset->bos_token_id + 1;
    if (preset->set) preset->set(&config);
    return config;
}

dsmoe_status dsmoe_config_preset(const char *name, dsmoe_config *config, dsmoe_error *error)
{
    if (!name || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no preset or no place for it given");
    for (int i = 0; i < N_PRESETS; i++) {
        if (strcmp(name, presets[i].name)) continue;
        *config = config_of(&presets[i]);
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

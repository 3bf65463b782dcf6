/* fuzz_config.c - any bytes as config.json and as generation_config.json: refused, or the result keeps the
 * promises that the rest of the library relies on. */
#include "fuzz.h"

#include "model/config.h"
#include "model/generation_config.h"

static bool is_token_or_none(int64_t id, const dsmoe_config *config)
{
    return id >= -1 && id < config->vocab_size;
}

static void try_config(const char *text, size_t size)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    dsmoe_status status = config_parse(text, size, "fuzz", &config, &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        return;
    }
    require(config_check(&config, NULL) == DSMOE_OK);
    require(config.kv_lora_rank > 0 || config.hidden_size % config.num_attention_heads == 0);
    require(config.num_attention_heads % config.num_key_value_heads == 0);
    require(config.num_experts_per_tok <= config.n_routed_experts);
    require(config.moe_layer_freq >= 1 && config.rope_theta >= 1);
    require(config.rope_scaling_factor >= 1);
    require(is_token_or_none(config.bos_token_id, &config));
    require(is_token_or_none(config.eos_token_id, &config));
    for (int64_t layer = 0; layer < config.num_hidden_layers; layer++)
        require(dsmoe_config_layer_is_moe(&config, layer)
                    ? config.moe_intermediate_size > 0 && config.num_experts_per_tok > 0
                    : config.intermediate_size > 0);
}

static void try_generation_config(const char *text, size_t size)
{
    static const dsmoe_config config = {
        .vocab_size = 102400, .bos_token_id = -1, .eos_token_id = 100001};
    dsmoe_generation_config out;
    dsmoe_error error = {0};
    dsmoe_status status = generation_config_parse(text, size, "fuzz", &config, &out, &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        return;
    }
    require(out.temperature >= 0 && out.top_p >= 0 && out.top_p <= 1 && out.top_k >= 0);
    require(out.repetition_penalty > 0 && is_token_or_none(out.bos_token_id, &config));
    require(out.n_eos_token_ids >= 1 && out.n_eos_token_ids <= 8);
    for (int i = 0; i < out.n_eos_token_ids; i++)
        require(out.eos_token_id[i] >= 0 && out.eos_token_id[i] < config.vocab_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    try_config((const char *)bytes, size);
    try_generation_config((const char *)bytes, size);
    return 0;
}

/* gguf_config.c - reads the configuration of a model from the metadata of its GGUF file. */
#include "model/gguf_config.h"

#include <inttypes.h>

#include "model/config.h"
#include "model/generation_config.h"
#include "model/gguf_latent.h"
#include "model/gguf_names.h"

#define VOCAB_KEY ".vocab_size"
#define KV_HEADS_KEY ".attention.head_count_kv"
#define BOS_KEY "tokenizer.ggml.bos_token_id"
#define EOS_KEY "tokenizer.ggml.eos_token_id"

static const gguf_field integers[] = {
    GGUF_FIELD(VOCAB_KEY, vocab_size, false),
    GGUF_FIELD(".embedding_length", hidden_size, true),
    GGUF_FIELD(".feed_forward_length", intermediate_size, false),
    GGUF_FIELD(".expert_feed_forward_length", moe_intermediate_size, false),
    GGUF_FIELD(".block_count", num_hidden_layers, true),
    GGUF_FIELD(".attention.head_count", num_attention_heads, true),
    GGUF_FIELD(KV_HEADS_KEY, num_key_value_heads, false),
    GGUF_FIELD(".expert_shared_count", n_shared_experts, false),
    GGUF_FIELD(".expert_count", n_routed_experts, false),
    GGUF_FIELD(".expert_used_count", num_experts_per_tok, false),
    GGUF_FIELD(".leading_dense_block_count", first_k_dense_replace, false),
    GGUF_FIELD(".context_length", max_position_embeddings, false),
    GGUF_FIELD(BOS_KEY, bos_token_id, false),
    GGUF_FIELD(EOS_KEY, eos_token_id, false),
    /* If the model's tokens differ from its tokenizer's. */
    GGUF_FIELD("dsmoe.bos_token_id", bos_token_id, false),
    GGUF_FIELD("dsmoe.eos_token_id", eos_token_id, false),
};
static const gguf_field numbers[] = {
    GGUF_FIELD(".attention.layer_norm_rms_epsilon", rms_norm_eps, false),
    GGUF_FIELD(".rope.freq_base", rope_theta, false),
    GGUF_FIELD("dsmoe.aux_loss_alpha", aux_loss_alpha, false),
    GGUF_FIELD("dsmoe.initializer_range", initializer_range, false),
};
enum {
    N_INTEGERS = sizeof integers / sizeof *integers,
    N_NUMBERS = sizeof numbers / sizeof *numbers,
    COMMON_TABLES = 2,
};

/* The key of a token may be absent, but not be -1, which means "absent" only inside this library. */
static dsmoe_status check_ids(const gguf_reader *r, const dsmoe_config *config, dsmoe_error *error)
{
    const char *key = NULL;
    if (config->bos_token_id < 0 && gguf_reader_has_int(r, BOS_KEY)) key = BOS_KEY;
    if (config->eos_token_id < 0 && gguf_reader_has_int(r, EOS_KEY)) key = EOS_KEY;
    if (!key) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is -1, which is not a token",
                       gguf_path(r->file), key);
}

/* Refuses other GGUF files: importances, adapters, tokenizers without a model. */
static dsmoe_status check_is_model(const gguf *file, dsmoe_error *error)
{
    gguf_string type = {"model", 5};
    bool found;
    STATUS_TRY(gguf_get_string(file, "general.type", &type, &found, error));
    if (gguf_string_is(type, "model")) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: not a model: general.type is \"%.*s\"",
                       gguf_path(file), gguf_shown(type), type.bytes);
}

static const char plain_architecture[] = "deepseek";

static dsmoe_status find_architecture(const gguf *file, const char **name, dsmoe_error *error)
{
    static const char *const known[] = {plain_architecture, GGUF_LATENT_ARCHITECTURE};
    gguf_string given;
    STATUS_TRY(gguf_get_string(file, "general.architecture", &given, NULL, error));
    for (int i = 0; i < 2; i++) {
        *name = known[i];
        if (gguf_string_is(given, known[i])) return DSMOE_OK;
    }
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s: general.architecture \"%.*s\" is not supported, only \"%s\" and "
                       "\"%s\"",
                       gguf_path(file), gguf_shown(given), given.bytes, known[0], known[1]);
}

/* "none", or "linear" with a factor; without a type a factor means "linear". */
static dsmoe_status read_rope_scaling(const gguf_reader *r, dsmoe_config *config,
                                      dsmoe_error *error)
{
    static const char type_key[] = ".rope.scaling.type", factor_key[] = ".rope.scaling.factor";
    gguf_string type = {"linear", 6};
    double factor = 1;
    STATUS_TRY(gguf_reader_string(r, type_key, &type, error));
    STATUS_TRY(gguf_reader_number(r, factor_key, &factor, error));
    if (gguf_string_is(type, "none")) return DSMOE_OK;
    if (!gguf_string_is(type, "linear"))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %s \"%.*s\" is not supported, only \"none\" and \"linear\"",
                           gguf_path(r->file), gguf_reader_key(r, type_key).name, gguf_shown(type),
                           type.bytes);
    if (!(factor >= 1 && factor <= 1e6))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %g, outside 1 to 1e6",
                           gguf_path(r->file), gguf_reader_key(r, factor_key).name, factor);
    if (factor == 1) return DSMOE_OK;
    config->rope_scaling = DSMOE_ROPE_LINEAR;
    config->rope_scaling_factor = factor;
    return DSMOE_OK;
}

/* Checks optional keys that may have only one value, which the paper's model computes with. */
static dsmoe_status check_fixed(const gguf_reader *r, const dsmoe_config *config,
                                dsmoe_error *error)
{
    static const char norm_key[] = ".expert_weights_norm";
    int64_t head_dim = config_head_dim(config);
    STATUS_TRY(gguf_reader_expect_int(r, ".rope.dimension_count", head_dim, error));
    STATUS_TRY(gguf_reader_expect_int(r, ".attention.key_length", head_dim, error));
    STATUS_TRY(gguf_reader_expect_int(r, ".attention.value_length", head_dim, error));
    STATUS_TRY(gguf_reader_expect_int(r, ".expert_gating_func", 1, error)); /* softmax */
    STATUS_TRY(gguf_reader_expect_number(r, ".expert_weights_scale", 1, error));
    bool norm = false;
    STATUS_TRY(gguf_reader_flag(r, norm_key, &norm, error));
    if (norm)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is true; only false is supported",
                           gguf_path(r->file), gguf_reader_key(r, norm_key).name);
    return DSMOE_OK;
}

/* Derives keys that follow from the tensors. */
static void look_at_tensors(const gguf_reader *r, dsmoe_config *config)
{
    gguf_place place;
    if (gguf_place_of(config, "model.embed_tokens.weight", &place)) {
        const gguf_tensor *embedding = gguf_find(r->file, place.name);
        if (embedding && !gguf_reader_has_int(r, VOCAB_KEY))
            config->vocab_size = embedding->shape[0];
    }
    if (gguf_place_of(config, "lm_head.weight", &place) && !gguf_find(r->file, place.name))
        config->tie_word_embeddings = true;
    if (gguf_place_of(config, "model.layers.0.self_attn.q_proj.bias", &place))
        config->attention_bias = gguf_find(r->file, place.name) != NULL;
}

dsmoe_status gguf_config_open(const char *path, dsmoe_config *config, dsmoe_error *error)
{
    gguf *file;
    STATUS_TRY(gguf_open(path, &file, error));
    dsmoe_status status = gguf_config_read(file, config, error);
    gguf_close(file);
    return status;
}

dsmoe_status gguf_generation_config_read(const gguf *file, const dsmoe_config *config,
                                         dsmoe_generation_config *out, dsmoe_error *error)
{
    gguf_string text = {"{}", 2};
    bool found;
    STATUS_TRY(gguf_get_string(file, "dsmoe.generation_config", &text, &found, error));
    dsmoe_error reason;
    dsmoe_status status = generation_config_parse(text.bytes, text.length,
                                                  "dsmoe.generation_config", config, out, &reason);
    if (status == DSMOE_OK) return status;
    return status_fail(error, status, "%s: %s", gguf_path(file), reason.message);
}

/* Reads the whole configuration, without checking it. */
static dsmoe_status read_all(const gguf_reader *r, bool latent, bool split, dsmoe_config *config,
                             dsmoe_error *error)
{
    STATUS_TRY(gguf_reader_fill(r, config, error));
    STATUS_TRY(
        gguf_reader_flag(r, "dsmoe.tie_word_embeddings", &config->tie_word_embeddings, error));
    STATUS_TRY(gguf_reader_flag(r, "dsmoe.seq_aux", &config->seq_aux, error));
    look_at_tensors(r, config);
    if (!config->n_routed_experts) config->n_shared_experts = config->num_experts_per_tok = 0;
    if (latent) return gguf_latent_read(r, split, config, error);
    if (!gguf_reader_has_int(r, KV_HEADS_KEY))
        config->num_key_value_heads = config->num_attention_heads;
    return read_rope_scaling(r, config, error);
}

dsmoe_status gguf_config_read(const gguf *file, dsmoe_config *config, dsmoe_error *error)
{
    gguf_fields tables[COMMON_TABLES + GGUF_LATENT_TABLES] = {{integers, N_INTEGERS, false},
                                                              {numbers, N_NUMBERS, true}};
    gguf_reader r = {.file = file, .tables = tables, .n_tables = COMMON_TABLES};
    dsmoe_config read = config_default();
    STATUS_TRY(check_is_model(file, error));
    STATUS_TRY(find_architecture(file, &r.architecture, error));
    bool latent = r.architecture != plain_architecture;
    bool split = latent && gguf_latent_is_split(file);
    if (latent) {
        gguf_latent_tables(split, tables + COMMON_TABLES);
        r.n_tables += GGUF_LATENT_TABLES;
    }
    STATUS_TRY(read_all(&r, latent, split, &read, error));
    dsmoe_error reason;
    dsmoe_status status = config_check(&read, &reason);
    if (status != DSMOE_OK) return gguf_reader_fail(&r, status, reason.message, error);
    STATUS_TRY(check_ids(&r, &read, error));
    STATUS_TRY(latent ? gguf_latent_check(&r, split, &read, error) : check_fixed(&r, &read, error));
    *config = read;
    return DSMOE_OK;
}

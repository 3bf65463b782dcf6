/* export_keys.c - the metadata of a GGUF file. Keys of this project (dsmoe.*) hold what the public
 * ones cannot, so that converting a model there and back loses nothing. */
#include "convert/export_keys.h"

#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "text/gguf_tokenizer.h"

enum { QUANTIZATION_VERSION = 2 }; /* of the block types' layouts */

static void put_string(gguf_writer *w, const char *key, const char *value)
{
    gguf_writer_string(w, key, value, strlen(value));
}

/* Sizes of a checked configuration are below 2^31. */
static void put_int(gguf_writer *w, const char *key, int64_t value)
{
    gguf_writer_u32(w, key, (uint32_t)value);
}

/* A writer of keys that begin with the architecture's name. */
typedef struct place {
    gguf_writer *writer;
    const char *architecture;
} place;

enum { KEY_SIZE = 80 };

static const char *key_of(const place *p, const char *key, char whole[KEY_SIZE])
{
    snprintf(whole, KEY_SIZE, "%s.%s", p->architecture, key);
    return whole;
}

static void place_int(const place *p, const char *key, int64_t value)
{
    char whole[KEY_SIZE];
    put_int(p->writer, key_of(p, key, whole), value);
}

static void place_number(const place *p, const char *key, double value)
{
    char whole[KEY_SIZE];
    gguf_writer_f32(p->writer, key_of(p, key, whole), (float)value);
}

static void place_string(const place *p, const char *key, const char *value)
{
    char whole[KEY_SIZE];
    put_string(p->writer, key_of(p, key, whole), value);
}

static void put_general(const gguf_export *e, dsmoe_dtype most, const place *p)
{
    bool keep = e->mixture.as_is && e->file_type >= 0;
    gguf_writer *w = p->writer;
    put_string(w, "general.architecture", p->architecture);
    put_string(w, "general.type", "model");
    if (e->name && *e->name) put_string(w, "general.name", e->name);
    put_int(w, "general.file_type", keep ? e->file_type : mixture_file_type(&e->mixture, most));
    put_int(w, "general.quantization_version", QUANTIZATION_VERSION);
}

/* Readers scale renormalised gate values, as V3 does and V2 does not. So the file of such a V2 model has the
 * scale 1, and dsmoe.routed_scaling_factor has the value of config.json. */
static bool is_scale_silent(const dsmoe_config *c)
{
    return c->model_type == DSMOE_DEEPSEEK_V2 && c->norm_topk_prob && c->num_experts_per_tok > 1;
}

static void put_experts(const dsmoe_config *c, const place *p)
{
    place_int(p, "leading_dense_block_count", c->first_k_dense_replace);
    place_int(p, "expert_count", c->n_routed_experts);
    place_int(p, "expert_used_count", c->num_experts_per_tok);
    place_int(p, "expert_shared_count", c->n_shared_experts);
    place_int(p, "expert_feed_forward_length", c->moe_intermediate_size);
    bool scaled = config_is_latent(c) && !is_scale_silent(c);
    place_number(p, "expert_weights_scale", scaled ? c->routed_scaling_factor : 1);
}

/* Keys of latent attention. The file describes it in the absorbed form: one key for all heads, as wide as the
 * latent and the rotated part. */
static void put_latent(const dsmoe_config *c, const place *p)
{
    char whole[KEY_SIZE];
    place_int(p, "attention.head_count_kv", 1);
    place_int(p, "attention.q_lora_rank", c->q_lora_rank); /* some readers need it, even if 0 */
    place_int(p, "attention.kv_lora_rank", c->kv_lora_rank);
    place_int(p, "attention.key_length", c->kv_lora_rank + c->qk_rope_head_dim);
    place_int(p, "attention.value_length", c->kv_lora_rank);
    place_int(p, "attention.key_length_mla", config_head_dim(c));
    place_int(p, "attention.value_length_mla", c->v_head_dim);
    gguf_writer_bool(p->writer, key_of(p, "expert_weights_norm", whole), c->norm_topk_prob);
    place_int(p, "expert_gating_func", c->scoring_func == DSMOE_SCORING_SIGMOID ? 2 : 1);
    if (c->n_group > 1) {
        place_int(p, "expert_group_count", c->n_group);
        place_int(p, "expert_group_used_count", c->topk_group);
    }
}

static void put_rope(const dsmoe_config *c, const place *p)
{
    static const char *const types[] = {
        [DSMOE_ROPE_NONE] = "none", [DSMOE_ROPE_LINEAR] = "linear", [DSMOE_ROPE_YARN] = "yarn"};
    place_int(p, "rope.dimension_count", config_rope_dim(c));
    place_number(p, "rope.freq_base", c->rope_theta);
    place_string(p, "rope.scaling.type", types[c->rope_scaling]);
    if (c->rope_scaling == DSMOE_ROPE_NONE) return;
    place_number(p, "rope.scaling.factor", c->rope_scaling_factor);
    if (c->rope_scaling != DSMOE_ROPE_YARN) return;
    place_int(p, "rope.scaling.original_context_length", c->original_max_position_embeddings);
    place_number(p, "rope.scaling.yarn_beta_fast", c->beta_fast);
    place_number(p, "rope.scaling.yarn_beta_slow", c->beta_slow);
    place_number(p, "rope.scaling.yarn_log_multiplier", 0.1 * c->mscale_all_dim);
}

static void put_architecture(const dsmoe_config *c, const place *p)
{
    place_int(p, "vocab_size", c->vocab_size);
    place_int(p, "context_length", c->max_position_embeddings);
    place_int(p, "embedding_length", c->hidden_size);
    place_int(p, "block_count", c->num_hidden_layers);
    place_int(p, "feed_forward_length", c->intermediate_size);
    place_int(p, "attention.head_count", c->num_attention_heads);
    place_number(p, "attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    if (config_is_latent(c))
        put_latent(c, p);
    else
        place_int(p, "attention.head_count_kv", c->num_key_value_heads);
    put_rope(c, p);
    put_experts(c, p);
}

static void put_own(const gguf_export *e, gguf_writer *w)
{
    const dsmoe_config *c = &e->source->config;
    gguf_writer_f32(w, "dsmoe.aux_loss_alpha", (float)c->aux_loss_alpha);
    gguf_writer_bool(w, "dsmoe.seq_aux", c->seq_aux);
    gguf_writer_f32(w, "dsmoe.initializer_range", (float)c->initializer_range);
    gguf_writer_bool(w, "dsmoe.tie_word_embeddings", c->tie_word_embeddings);
    if (is_scale_silent(c))
        gguf_writer_f32(w, "dsmoe.routed_scaling_factor", (float)c->routed_scaling_factor);
    if (e->tokenizer && c->bos_token_id >= 0) put_int(w, "dsmoe.bos_token_id", c->bos_token_id);
    if (e->tokenizer && c->eos_token_id >= 0) put_int(w, "dsmoe.eos_token_id", c->eos_token_id);
    if (e->generation)
        gguf_writer_string(w, "dsmoe.generation_config", e->generation, e->generation_length);
}

static void put_imatrix(const imatrix *m, gguf_writer *w)
{
    const char *slash = strrchr(imatrix_path(m), '/');
    put_string(w, "quantize.imatrix.file", slash ? slash + 1 : imatrix_path(m));
    put_int(w, "quantize.imatrix.entries_count", imatrix_count(m));
}

/* A model without a tokenizer only has the ids that begin and end a text. */
static void put_ids_only(const dsmoe_config *c, gguf_writer *w)
{
    put_string(w, "tokenizer.ggml.model", "none");
    if (c->bos_token_id >= 0) put_int(w, "tokenizer.ggml.bos_token_id", c->bos_token_id);
    if (c->eos_token_id >= 0) put_int(w, "tokenizer.ggml.eos_token_id", c->eos_token_id);
}

dsmoe_status export_keys_write(const gguf_export *e, dsmoe_dtype most, gguf_writer *w,
                               dsmoe_error *error)
{
    const dsmoe_config *c = &e->source->config;
    const place p = {w, config_is_latent(c) ? "deepseek2" : "deepseek"};
    put_general(e, most, &p);
    put_architecture(c, &p);
    put_own(e, w);
    if (e->imatrix) put_imatrix(e->imatrix, w);
    if (e->tokenizer) return gguf_tokenizer_write(e->tokenizer, e->form, c->vocab_size, w, error);
    put_ids_only(c, w);
    return DSMOE_OK;
}

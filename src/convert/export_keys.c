/* export_keys.c - the metadata of a GGUF file. Keys of this project (dsmoe.*) hold what the public
 * ones cannot, so that going there and back loses nothing. */
#include "convert/export_keys.h"

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

static void put_general(const gguf_export *e, dsmoe_dtype most, gguf_writer *w)
{
    bool keep = e->mixture.as_is && e->file_type >= 0;
    put_string(w, "general.architecture", "deepseek");
    put_string(w, "general.type", "model");
    if (e->name && *e->name) put_string(w, "general.name", e->name);
    put_int(w, "general.file_type", keep ? e->file_type : mixture_file_type(&e->mixture, most));
    put_int(w, "general.quantization_version", QUANTIZATION_VERSION);
}

static void put_experts(const dsmoe_config *c, gguf_writer *w)
{
    put_int(w, "deepseek.leading_dense_block_count", c->first_k_dense_replace);
    put_int(w, "deepseek.expert_count", c->n_routed_experts);
    put_int(w, "deepseek.expert_used_count", c->num_experts_per_tok);
    put_int(w, "deepseek.expert_shared_count", c->n_shared_experts);
    put_int(w, "deepseek.expert_feed_forward_length", c->moe_intermediate_size);
    gguf_writer_f32(w, "deepseek.expert_weights_scale", 1);
}

static void put_architecture(const dsmoe_config *c, gguf_writer *w)
{
    put_int(w, "deepseek.vocab_size", c->vocab_size);
    put_int(w, "deepseek.context_length", c->max_position_embeddings);
    put_int(w, "deepseek.embedding_length", c->hidden_size);
    put_int(w, "deepseek.block_count", c->num_hidden_layers);
    put_int(w, "deepseek.feed_forward_length", c->intermediate_size);
    put_int(w, "deepseek.attention.head_count", c->num_attention_heads);
    put_int(w, "deepseek.attention.head_count_kv", c->num_key_value_heads);
    gguf_writer_f32(w, "deepseek.attention.layer_norm_rms_epsilon", (float)c->rms_norm_eps);
    put_int(w, "deepseek.rope.dimension_count", config_head_dim(c));
    gguf_writer_f32(w, "deepseek.rope.freq_base", (float)c->rope_theta);
    bool scaled = c->rope_scaling == DSMOE_ROPE_LINEAR;
    put_string(w, "deepseek.rope.scaling.type", scaled ? "linear" : "none");
    if (scaled) gguf_writer_f32(w, "deepseek.rope.scaling.factor", (float)c->rope_scaling_factor);
    put_experts(c, w);
}

static void put_own(const gguf_export *e, gguf_writer *w)
{
    const dsmoe_config *c = &e->source->config;
    gguf_writer_f32(w, "dsmoe.aux_loss_alpha", (float)c->aux_loss_alpha);
    gguf_writer_bool(w, "dsmoe.seq_aux", c->seq_aux);
    gguf_writer_f32(w, "dsmoe.initializer_range", (float)c->initializer_range);
    gguf_writer_bool(w, "dsmoe.tie_word_embeddings", c->tie_word_embeddings);
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

/* A model of ids only has nothing but the ids that begin and end a text. */
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
    put_general(e, most, w);
    put_architecture(c, w);
    put_own(e, w);
    if (e->imatrix) put_imatrix(e->imatrix, w);
    if (e->tokenizer) return gguf_tokenizer_write(e->tokenizer, c->vocab_size, w, error);
    put_ids_only(c, w);
    return DSMOE_OK;
}

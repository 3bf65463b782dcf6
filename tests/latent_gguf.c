/* latent_gguf.c - writes folders with latent attention as GGUF files. */
#include "latent_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shards.h"
#include "kernels/quantize.h"
#include "made_model.h"
#include "support.h"

/* A tensor of the file; its numbers are copied one by one from the folder's tensors. */
typedef struct item {
    char name[64];
    dsmoe_dtype type;
    int n_dims;
    int64_t shape[3], n;
    float *numbers;
} item;

typedef struct making {
    dsmoe_config config;
    shards *folder;
    const latent_gguf_options *options;
    item *items;
    int n_items;
} making;

/* ---- metadata ------------------------------------------------------------------------------ */

static void put_attention(const made_keys *k, const dsmoe_config *c, bool old)
{
    int64_t rope = c->qk_rope_head_dim, nope = c->qk_nope_head_dim, rank = c->kv_lora_rank;
    made_keys_int(k, "deepseek2.attention.head_count", c->num_attention_heads);
    made_keys_int(k, "deepseek2.attention.head_count_kv", old ? c->num_attention_heads : 1);
    made_keys_int(k, "deepseek2.attention.key_length", old ? nope + rope : rank + rope);
    made_keys_int(k, "deepseek2.attention.value_length", old ? c->v_head_dim : rank);
    if (!old) made_keys_int(k, "deepseek2.attention.key_length_mla", nope + rope);
    if (!old) made_keys_int(k, "deepseek2.attention.value_length_mla", c->v_head_dim);
    if (c->q_lora_rank) made_keys_int(k, "deepseek2.attention.q_lora_rank", c->q_lora_rank);
    made_keys_int(k, "deepseek2.attention.kv_lora_rank", rank);
    made_keys_number(k, "deepseek2.attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    made_keys_int(k, "deepseek2.rope.dimension_count", rope);
    made_keys_number(k, "deepseek2.rope.freq_base", c->rope_theta);
    if (c->rope_scaling != DSMOE_ROPE_YARN) return;
    made_keys_text(k, "deepseek2.rope.scaling.type", "yarn");
    made_keys_number(k, "deepseek2.rope.scaling.factor", c->rope_scaling_factor);
    made_keys_int(k, "deepseek2.rope.scaling.original_context_length",
                  c->original_max_position_embeddings);
    made_keys_number(k, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1 * c->mscale_all_dim);
}

static void put_experts(const made_keys *k, const dsmoe_config *c)
{
    made_keys_int(k, "deepseek2.leading_dense_block_count", c->first_k_dense_replace);
    made_keys_int(k, "deepseek2.expert_count", c->n_routed_experts);
    made_keys_int(k, "deepseek2.expert_used_count", c->num_experts_per_tok);
    made_keys_int(k, "deepseek2.expert_shared_count", c->n_shared_experts);
    made_keys_int(k, "deepseek2.expert_feed_forward_length", c->moe_intermediate_size);
    made_keys_number(k, "deepseek2.expert_weights_scale", c->routed_scaling_factor);
    if (c->norm_topk_prob) made_keys_flag(k, "deepseek2.expert_weights_norm", true);
    if (c->scoring_func == DSMOE_SCORING_SIGMOID)
        made_keys_int(k, "deepseek2.expert_gating_func", 2);
    if (c->n_group == 0) return;
    made_keys_int(k, "deepseek2.expert_group_count", c->n_group);
    made_keys_int(k, "deepseek2.expert_group_used_count", c->topk_group);
}

static void put_metadata(const made_keys *k, const dsmoe_config *c, bool old)
{
    made_keys_text(k, "general.architecture", "deepseek2");
    made_keys_int(k, "deepseek2.vocab_size", c->vocab_size);
    made_keys_int(k, "deepseek2.block_count", c->num_hidden_layers);
    made_keys_int(k, "deepseek2.context_length", c->max_position_embeddings);
    made_keys_int(k, "deepseek2.embedding_length", c->hidden_size);
    made_keys_int(k, "deepseek2.feed_forward_length", c->intermediate_size);
    put_attention(k, c, old);
    put_experts(k, c);
    made_keys_number(k, "dsmoe.aux_loss_alpha", c->aux_loss_alpha);
    made_keys_number(k, "dsmoe.initializer_range", c->initializer_range);
    if (c->bos_token_id >= 0) made_keys_int(k, "tokenizer.ggml.bos_token_id", c->bos_token_id);
    if (c->eos_token_id >= 0) made_keys_int(k, "tokenizer.ggml.eos_token_id", c->eos_token_id);
    made_keys_given(k);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static item *add(making *m, const char *name, dsmoe_dtype type, int n_dims, const int64_t *shape)
{
    m->items = realloc(m->items, (size_t)(m->n_items + 1) * sizeof *m->items);
    assert_non_null(m->items);
    item *t = &m->items[m->n_items++];
    *t = (item){.type = type, .n_dims = n_dims, .n = 1};
    assert_true(strlen(name) < sizeof t->name);
    strcpy(t->name, name);
    for (int i = 0; i < n_dims; i++) t->n *= t->shape[i] = shape[i];
    t->numbers = calloc((size_t)t->n, sizeof *t->numbers);
    assert_non_null(t->numbers);
    return t;
}

static const safetensors_tensor *find(const making *m, const char *name)
{
    const safetensors_tensor *t = shards_find(m->folder, name, NULL);
    if (!t) fail_msg("there is no %s", name);
    return t;
}

static dsmoe_dtype type_of(const safetensors_tensor *t)
{
    if (t->n_dims == 1 || strstr(t->name, "mlp.gate.weight")) return DSMOE_F32;
    return t->dtype == SAFETENSORS_BF16 ? DSMOE_BF16 : DSMOE_F32;
}

static void copy(making *m, const char *from, const char *to)
{
    const safetensors_tensor *t = find(m, from);
    item *made = add(m, to, type_of(t), t->n_dims, t->shape);
    assert_true(safetensors_tensor_read_f32(t, 0, t->n_elements, made->numbers));
}

static void copy_layer(making *m, int layer, const char *from, const char *to)
{
    char name[96], gguf_name[96];
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, from);
    snprintf(gguf_name, sizeof gguf_name, "blk.%d.%s", layer, to);
    copy(m, name, gguf_name);
}

static void stack_experts(making *m, int layer, const char *which)
{
    int64_t n = m->config.n_routed_experts;
    item *stack = NULL;
    for (int e = 0; e < n; e++) {
        char name[96], gguf_name[64];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer, e,
                 which);
        snprintf(gguf_name, sizeof gguf_name, "blk.%d.ffn_%s_exps.weight", layer, which);
        const safetensors_tensor *t = find(m, name);
        const int64_t shape[] = {n, t->shape[0], t->shape[1]};
        if (e == 0) stack = add(m, gguf_name, type_of(t), 3, shape);
        assert_true(safetensors_tensor_read_f32(t, 0, t->n_elements,
                                                stack->numbers + e * (int64_t)t->n_elements));
    }
}

/* Splits kv[head][nope | v][rank] into k[head][rank][nope] and v[head][v][rank]. */
static void split_kv_b(making *m, int layer, dsmoe_dtype type, const float *kv)
{
    const dsmoe_config *c = &m->config;
    int64_t heads = c->num_attention_heads, rank = c->kv_lora_rank, nope = c->qk_nope_head_dim;
    int64_t value = c->v_head_dim;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", layer);
    float *k = add(m, name, type, 3, (int64_t[]){heads, rank, nope})->numbers;
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", layer);
    float *v = add(m, name, type, 3, (int64_t[]){heads, value, rank})->numbers;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < nope + value; i++)
            for (int64_t j = 0; j < rank; j++) {
                float x = *kv++;
                if (i < nope)
                    k[(h * rank + j) * nope + i] = x;
                else
                    v[(h * value + i - nope) * rank + j] = x;
            }
}

static void add_kv_b(making *m, int layer)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.self_attn.kv_b_proj.weight", layer);
    const safetensors_tensor *t = find(m, name);
    dsmoe_dtype type = type_of(t);
    if (m->options->type) assert_true(dtype_from_name(m->options->type, &type));
    float *kv = malloc(t->n_elements * sizeof *kv);
    assert_non_null(kv);
    assert_true(safetensors_tensor_read_f32(t, 0, t->n_elements, kv));
    if (!m->options->old || m->options->both) split_kv_b(m, layer, type, kv);
    if (m->options->old || m->options->both) {
        snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", layer);
        memcpy(add(m, name, type, 2, t->shape)->numbers, kv, t->n_elements * sizeof *kv);
    }
    free(kv);
}

static void add_mlp(making *m, int layer, const char *from, const char *suffix)
{
    static const char *const which[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) {
        char name[64], gguf_name[64];
        snprintf(name, sizeof name, "mlp.%s%s_proj.weight", from, which[i]);
        snprintf(gguf_name, sizeof gguf_name, "ffn_%s%s.weight", which[i], suffix);
        copy_layer(m, layer, name, gguf_name);
    }
}

static void add_layer(making *m, int layer)
{
    const dsmoe_config *c = &m->config;
    copy_layer(m, layer, "input_layernorm.weight", "attn_norm.weight");
    copy_layer(m, layer, "post_attention_layernorm.weight", "ffn_norm.weight");
    if (c->q_lora_rank > 0) {
        copy_layer(m, layer, "self_attn.q_a_proj.weight", "attn_q_a.weight");
        copy_layer(m, layer, "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight");
        copy_layer(m, layer, "self_attn.q_b_proj.weight", "attn_q_b.weight");
    } else {
        copy_layer(m, layer, "self_attn.q_proj.weight", "attn_q.weight");
    }
    copy_layer(m, layer, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight");
    copy_layer(m, layer, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight");
    copy_layer(m, layer, "self_attn.o_proj.weight", "attn_output.weight");
    add_kv_b(m, layer);
    if (layer < c->first_k_dense_replace) {
        add_mlp(m, layer, "", "");
        return;
    }
    copy_layer(m, layer, "mlp.gate.weight", "ffn_gate_inp.weight");
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC)
        copy_layer(m, layer, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias");
    stack_experts(m, layer, "gate");
    stack_experts(m, layer, "up");
    stack_experts(m, layer, "down");
    add_mlp(m, layer, "shared_experts.", "_shexp");
}

/* ---- the file ------------------------------------------------------------------------------ */

static bool is_written(const making *m, const item *t)
{
    const latent_gguf_options *o = m->options;
    if (o->alone) return !strcmp(o->alone, t->name);
    return !o->left_out || strcmp(o->left_out, t->name);
}

static bool is_longer(const making *m, const item *t)
{
    return m->options->longer && !strcmp(m->options->longer, t->name);
}

static void declare(const making *m, gguf_writer *writer)
{
    dsmoe_error error = {0};
    for (int i = 0; i < m->n_items; i++) {
        item *t = &m->items[i];
        int64_t shape[] = {t->shape[0] + is_longer(m, t), t->shape[1], t->shape[2]};
        if (is_written(m, t))
            must(gguf_writer_declare(writer, t->name, t->type, t->n_dims, shape, &error), &error,
                 t->name);
    }
}

static void write_item(const making *m, const item *t, gguf_writer *writer)
{
    dsmoe_error error = {0};
    int64_t width = t->n_dims > 1 ? t->shape[t->n_dims - 1] : 1,
            more = is_longer(m, t) ? t->n / t->shape[0] : 0;
    size_t size = (size_t)dtype_bytes(t->type, width);
    float packed[1024], zeros[1024] = {0};
    assert_true(width <= (int64_t)COUNT(packed));
    for (int64_t i = 0; i < t->n + more; i += width) {
        quantize_row(t->type, width, i < t->n ? t->numbers + i : zeros, NULL, packed);
        must(gguf_writer_write(writer, packed, size, &error), &error, t->name);
    }
}

static void gather(making *m, const char *folder)
{
    char path[512];
    dsmoe_error error = {0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    must(dsmoe_config_read(path, &m->config, &error), &error, path);
    must(shards_open(folder, &m->folder, &error), &error, folder);
    copy(m, "model.embed_tokens.weight", "token_embd.weight");
    for (int i = 0; i < m->config.num_hidden_layers; i++) add_layer(m, i);
    copy(m, "model.norm.weight", "output_norm.weight");
    copy(m, "lm_head.weight", "output.weight");
}

void latent_gguf_write(const char *folder, const char *to, const latent_gguf_options *options)
{
    static const latent_gguf_options none = {0};
    making m = {.options = options ? options : &none};
    made_keys k = {.given = m.options->keys, .n_given = m.options->n_keys};
    dsmoe_error error = {0};
    gather(&m, folder);
    remove(to);
    must(gguf_writer_create(to, &k.writer, &error), &error, to);
    if (m.options->alone)
        made_keys_given(&k);
    else
        put_metadata(&k, &m.config, m.options->old);
    declare(&m, k.writer);
    for (int i = 0; i < m.n_items; i++)
        if (is_written(&m, &m.items[i])) write_item(&m, &m.items[i], k.writer);
    must(gguf_writer_finish(k.writer, &error), &error, to);
    made_keys_sign(&k, to);
    for (int i = 0; i < m.n_items; i++) free(m.items[i].numbers);
    free(m.items);
    shards_close(m.folder);
}

/* made_gguf.c - small models as GGUF files. */
#include "made_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quantize.h"
#include "scratch.h"
#include "support.h"
#include "text/gguf_tokenizer.h"

/* ---- metadata ------------------------------------------------------------------------------ */

static void put_config(const made_keys *k, const dsmoe_config *c)
{
    made_keys_text(k, "general.architecture", "deepseek");
    made_keys_int(k, "deepseek.block_count", c->num_hidden_layers);
    made_keys_int(k, "deepseek.context_length", c->max_position_embeddings);
    made_keys_int(k, "deepseek.embedding_length", c->hidden_size);
    made_keys_int(k, "deepseek.feed_forward_length", c->intermediate_size);
    made_keys_int(k, "deepseek.attention.head_count", c->num_attention_heads);
    made_keys_int(k, "deepseek.attention.head_count_kv", c->num_key_value_heads);
    made_keys_number(k, "deepseek.attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    made_keys_number(k, "deepseek.rope.freq_base", c->rope_theta);
    made_keys_int(k, "deepseek.rope.dimension_count", c->hidden_size / c->num_attention_heads);
    made_keys_text(k, "deepseek.rope.scaling.type",
                   c->rope_scaling == DSMOE_ROPE_LINEAR ? "linear" : "none");
    if (c->rope_scaling == DSMOE_ROPE_LINEAR)
        made_keys_number(k, "deepseek.rope.scaling.factor", c->rope_scaling_factor);
    made_keys_int(k, "deepseek.vocab_size", c->vocab_size);
    made_keys_number(k, "dsmoe.aux_loss_alpha", c->aux_loss_alpha);
    made_keys_number(k, "dsmoe.initializer_range", c->initializer_range);
    if (!c->seq_aux) made_keys_flag(k, "dsmoe.seq_aux", false);
    if (c->n_routed_experts == 0) return;
    made_keys_int(k, "deepseek.leading_dense_block_count", c->first_k_dense_replace);
    made_keys_int(k, "deepseek.expert_count", c->n_routed_experts);
    made_keys_int(k, "deepseek.expert_used_count", c->num_experts_per_tok);
    made_keys_int(k, "deepseek.expert_shared_count", c->n_shared_experts);
    made_keys_int(k, "deepseek.expert_feed_forward_length", c->moe_intermediate_size);
    made_keys_number(k, "deepseek.expert_weights_scale", 1);
}

static void put_metadata(const made_keys *k, const dsmoe_config *c, const char *tokenizer)
{
    dsmoe_error error = {0};
    put_config(k, c);
    if (tokenizer) {
        must(gguf_tokenizer_write(tokenizer, NULL, c->vocab_size, k->writer, &error), &error,
             "the tokenizer");
    } else {
        if (c->bos_token_id >= 0) made_keys_int(k, "tokenizer.ggml.bos_token_id", c->bos_token_id);
        if (c->eos_token_id >= 0) made_keys_int(k, "tokenizer.ggml.eos_token_id", c->eos_token_id);
    }
    made_keys_given(k);
}

/* ---- tensors ------------------------------------------------------------------------------- */

int made_gguf_name(const char *name, char out[64])
{
    static const char *const parts[][2] = {
        {"input_layernorm.weight", "attn_norm.weight"},
        {"post_attention_layernorm.weight", "ffn_norm.weight"},
        {"self_attn.q_proj.", "attn_q."},
        {"self_attn.k_proj.", "attn_k."},
        {"self_attn.v_proj.", "attn_v."},
        {"self_attn.o_proj.", "attn_output."},
        {"mlp.gate.weight", "ffn_gate_inp.weight"},
    };
    int layer, expert = -1, at = 0;
    if (!strcmp(name, "model.embed_tokens.weight")) strcpy(out, "token_embd.weight");
    if (!strcmp(name, "model.norm.weight")) strcpy(out, "output_norm.weight");
    if (!strcmp(name, "lm_head.weight")) strcpy(out, "output.weight");
    if (sscanf(name, "model.layers.%d.%n", &layer, &at) != 1) return -1;
    const char *rest = name + at;
    for (size_t i = 0; i < COUNT(parts); i++) {
        size_t length = strlen(parts[i][0]);
        if (strncmp(rest, parts[i][0], length)) continue;
        snprintf(out, 64, "blk.%d.%s%s", layer, parts[i][1], rest + length);
        return -1;
    }
    const char *suffix = "";
    if (sscanf(rest, "mlp.experts.%d.", &expert) == 1) suffix = "_exps";
    if (!strncmp(rest, "mlp.shared_experts.", 19)) suffix = "_shexp";
    const char *which = strstr(rest, "gate_proj") ? "gate"
                        : strstr(rest, "up_proj") ? "up"
                                                  : "down";
    snprintf(out, 64, "blk.%d.ffn_%s%s.weight", layer, which, suffix);
    return expert;
}

static dsmoe_dtype type_of(const made_tensor *t, const made_gguf_options *o, const char *name)
{
    if (o->quantised && !strcmp(o->quantised, name)) return DSMOE_Q8_0;
    if (t->n_dims == 1 || strstr(t->name, "mlp.gate.weight")) return DSMOE_F32;
    if (o->has_type) return o->type;
    return !strcmp(t->dtype, "F16")    ? DSMOE_F16
           : !strcmp(t->dtype, "BF16") ? DSMOE_BF16
                                       : DSMOE_F32;
}

static bool is_left_out(const made_tensor *t, const made_gguf_options *o, const char *name)
{
    return t->left_out || (o->left_out && !strcmp(o->left_out, name));
}

static void declare(const made_model *m, gguf_writer *writer, const made_gguf_options *o)
{
    dsmoe_error error = {0};
    for (int i = 0; i < m->n_tensors; i++) {
        const made_tensor *t = &m->tensors[i];
        char name[64];
        int expert = made_gguf_name(t->name, name);
        if (expert > 0 || is_left_out(t, o, name)) continue;
        int64_t shape[] = {m->config.n_routed_experts, t->shape[0], t->shape[1]};
        int from = expert == 0 ? 0 : 1, n_dims = expert == 0 ? 3 : t->n_dims;
        shape[from] += o->longer && !strcmp(o->longer, name);
        must(gguf_writer_declare(writer, name, type_of(t, o, name), n_dims, shape + from, &error),
             &error, name);
    }
    if (o->extra)
        must(gguf_writer_declare(writer, o->extra, DSMOE_F32, 1, (int64_t[]){4}, &error), &error,
             o->extra);
}

/* GGUF stores the rows of each head of q and k in the order 0, d/2, 1, d/2 + 1, … . */
static int64_t row_at(const made_model *m, const made_tensor *t, int64_t row)
{
    if (!strstr(t->name, "q_proj") && !strstr(t->name, "k_proj")) return row;
    int64_t d = m->config.hidden_size / m->config.num_attention_heads;
    int64_t head = row / d, pair = row % d / 2, half = row % 2;
    return head * d + half * (d / 2) + pair;
}

/* NaN cannot be quantised. For a row that begins with NaN all bits are set, also those of the scales,
 * which makes NaN in every type. */
static void write_row(gguf_writer *writer, dsmoe_dtype type, int64_t n, const float *row)
{
    dsmoe_error error = {0};
    float packed[4096];
    assert_true(n <= (int64_t)COUNT(packed));
    if (isnan(row[0]))
        memset(packed, 0xff, (size_t)dtype_bytes(type, n));
    else
        quantize_row(type, n, row, NULL, packed);
    must(gguf_writer_write(writer, packed, (size_t)dtype_bytes(type, n), &error), &error, "a row");
}

static void write_tensor(const made_model *m, const made_tensor *t, dsmoe_dtype type,
                         gguf_writer *writer)
{
    for (int64_t i = 0; i < t->shape[0]; i++)
        if (t->n_dims == 2)
            write_row(writer, type, t->shape[1], t->data + row_at(m, t, i) * t->shape[1]);
    if (t->n_dims == 2) return;
    float vector[4096];
    assert_true(t->n <= (int64_t)COUNT(vector));
    for (int64_t i = 0; i < t->n; i++) vector[i] = t->data[row_at(m, t, i)];
    write_row(writer, type, t->n, vector);
}

/* All experts of a stack are written where the first one is declared. */
static void write_data(const made_model *m, gguf_writer *writer, const made_gguf_options *o)
{
    for (int i = 0; i < m->n_tensors; i++) {
        const made_tensor *t = &m->tensors[i];
        char name[64], other[64];
        int expert = made_gguf_name(t->name, name);
        if (expert > 0 || is_left_out(t, o, name)) continue;
        dsmoe_dtype type = type_of(t, o, name);
        int n_copies = 1 + (o->longer && !strcmp(o->longer, name));
        for (int j = i; j < m->n_tensors && expert == 0; j++) {
            if (made_gguf_name(m->tensors[j].name, other) < 0 || strcmp(name, other)) continue;
            write_tensor(m, &m->tensors[j], type, writer);
        }
        if (expert < 0) write_tensor(m, t, type, writer);
        if (n_copies == 2) { /* one more row, or expert, with the same numbers */
            if (expert == 0)
                write_tensor(m, t, type, writer);
            else
                write_row(writer, type, t->n_dims == 2 ? t->shape[1] : 1, t->data);
        }
    }
    if (o->extra) write_row(writer, DSMOE_F32, 4, (float[]){1, 2, 3, 4});
}

/* ---- the file ------------------------------------------------------------------------------ */

void made_gguf_write(const made_model *m, const char *to, const made_gguf_options *options)
{
    made_gguf_options none = {0};
    const made_gguf_options *o = options ? options : &none;
    made_keys k = {.given = o->keys, .n_given = o->n_keys};
    dsmoe_error error = {0};
    remove(to);
    must(gguf_writer_create(to, &k.writer, &error), &error, to);
    put_metadata(&k, &m->config, o->tokenizer);
    declare(m, k.writer, o);
    write_data(m, k.writer, o);
    must(gguf_writer_finish(k.writer, &error), &error, to);
    made_keys_sign(&k, to);
}

/* ---- the file's path ----------------------------------------------------------------------- */

char made_file[320];

int made_gguf_set_up(void **state)
{
    int failed = make_directory(state);
    snprintf(made_file, sizeof made_file, "%s/model.gguf", directory);
    return failed;
}

int made_gguf_tear_down(void **state)
{
    remove(made_file);
    made_model_remove(directory);
    return remove_directory(state);
}

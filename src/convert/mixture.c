/* mixture.c - types of matrices in GGUF files. */
#include "convert/mixture.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"

/* general.file_type, by the type of most matrices. */
static const uint32_t file_types[N_DTYPES] = {
    [DSMOE_F32] = 0,  [DSMOE_F16] = 1,   [DSMOE_BF16] = 32, [DSMOE_Q8_0] = 7,  [DSMOE_Q4_0] = 2,
    [DSMOE_Q5_0] = 8, [DSMOE_Q4_K] = 14, [DSMOE_Q5_K] = 16, [DSMOE_Q6_K] = 18, [DSMOE_Q5_1] = 9,
};
enum { FILE_TYPE_Q4_K_M = 15 };

dsmoe_status mixture_parse(const char *name, mixture *m, dsmoe_error *error)
{
    *m = (mixture){.as_is = !name};
    if (!name || dtype_from_name(name, &m->type)) return DSMOE_OK;
    if (!strcmp(name, "q4_k_m")) {
        *m = (mixture){.type = DSMOE_Q4_K, .medium = true};
        return DSMOE_OK;
    }
    char known[128] = "";
    for (int i = 0, at = 0; i < N_DTYPES; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s, ", dtype_table[i].name);
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no type '%.64s', only %sq4_k_m", name,
                       known);
}

/* Layers whose errors do the most harm. */
static bool wants_more_bits(int64_t layer, int64_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static bool is_sensitive(const char *gguf_name, int64_t n_layers)
{
    long long layer;
    int at = 0;
    if (sscanf(gguf_name, "blk.%lld.%n", &layer, &at) < 1 || at == 0) return false;
    const char *rest = gguf_name + at;
    return (!strncmp(rest, "attn_v.", 7) || !strncmp(rest, "ffn_down", 8)) &&
           wants_more_bits(layer, n_layers);
}

/* Q8_0 and the float types are better than Q6_K already. */
static dsmoe_dtype at_least_q6_k(dsmoe_dtype type)
{
    return dtype_is_block(type) && type != DSMOE_Q8_0 ? DSMOE_Q6_K : type;
}

/* A type with more bits and blocks of 32 numbers. */
static dsmoe_dtype stand_in(dsmoe_dtype type)
{
    switch (type) {
    case DSMOE_Q4_K: return DSMOE_Q5_0;
    case DSMOE_Q5_K: return DSMOE_Q5_1;
    case DSMOE_Q6_K: return DSMOE_Q8_0;
    default: return type;
    }
}

/* The type itself, or another if a row is not a whole number of its blocks. */
static dsmoe_dtype type_for_rows(dsmoe_dtype type, int64_t n_in)
{
    if (n_in % dtype_table[type].block == 0) return type;
    type = stand_in(type);
    return n_in % dtype_table[type].block == 0 ? type : DSMOE_F16;
}

dsmoe_dtype mixture_type(const mixture *m, const source *s, const source_tensor *t,
                         const char *gguf_name)
{
    if (t->n_dims == 1 || t->role == WEIGHT_ROUTER) return DSMOE_F32;
    if (m->as_is) return source_kept_dtype(s, t);
    dsmoe_dtype type = m->type;
    bool is_head = !strcmp(gguf_name, "output.weight") ||
                   (s->config.tie_word_embeddings && !strcmp(gguf_name, "token_embd.weight"));
    if (is_head || (m->medium && is_sensitive(gguf_name, s->config.num_hidden_layers)))
        type = at_least_q6_k(type);
    return type_for_rows(type, t->n_in);
}

uint32_t mixture_file_type(const mixture *m, dsmoe_dtype most)
{
    if (m->medium) return FILE_TYPE_Q4_K_M;
    return file_types[m->as_is ? most : m->type];
}

/* latent_keys.c - the rows of kv_b_proj that make keys, copied if no kernel can sum them as they are. */
#include "model/latent_keys.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/threads.h"
#include "model/config.h"

/* The type in which a layer's rows are kept. */
static dsmoe_dtype kept_type(dsmoe_dtype type)
{
    if (type == DSMOE_F32 || type == DSMOE_F16 || type == DSMOE_Q8_0) return type;
    return dtype_is_block(type) ? DSMOE_F16 : DSMOE_F32;
}

static int64_t kept_rows(const dsmoe_config *c)
{
    return c->num_attention_heads * c->qk_nope_head_dim;
}

/* Bytes of a layer's copy; 0: there is none. */
static size_t copy_size(const dsmoe_model *model, int64_t layer)
{
    const dsmoe_config *c = &model->config;
    dsmoe_dtype type = model->weights->layers[layer].kv_b_proj.type, kept = kept_type(type);
    return model->weights->kv_b_split || kept == type
               ? 0
               : (size_t)(kept_rows(c) * dtype_bytes(kept, c->kv_lora_rank));
}

size_t latent_keys_size(const dsmoe_model *model)
{
    size_t size = 0;
    for (int64_t i = 0; config_is_latent(&model->config) && i < model->config.num_hidden_layers;
         i++)
        size += copy_size(model, i);
    return size;
}

typedef struct copy_job {
    const dsmoe_model *model;
    const latent_keys *keys;
    float *row; /* one for each thread */
} copy_job;

/* Copies one head of one layer. */
static void copy_task(void *context, int64_t task, int thread)
{
    const copy_job *job = context;
    const dsmoe_config *c = &job->model->config;
    const kernels *kn = job->model->kernels;
    int64_t layer = task / c->num_attention_heads, head = task % c->num_attention_heads;
    matrix from = job->model->weights->layers[layer].kv_b_proj;
    const latent_key_rows *to = &job->keys->layers[layer];
    int64_t rank = c->kv_lora_rank, first = head * (c->qk_nope_head_dim + c->v_head_dim);
    float *row = job->row + thread * rank;
    if (copy_size(job->model, layer) == 0) return;
    unsigned char *at = (unsigned char *)to->data + head * to->head;
    for (int64_t i = 0; i < c->qk_nope_head_dim; i++, at += dtype_bytes(to->type, rank)) {
        kn->dtypes[from.type].widen(rank, matrix_at(from, first + i, 0), row);
        kn->caches[to->type].narrow(rank, row, at);
    }
}

static void place_layers(latent_keys *keys, const dsmoe_model *model)
{
    const dsmoe_config *c = &model->config;
    unsigned char *at = keys->memory;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        matrix from = model->weights->layers[i].kv_b_proj;
        size_t size = copy_size(model, i);
        latent_key_rows *to = &keys->layers[i];
        *to = (latent_key_rows){.data = from.data,
                                .head = (c->qk_nope_head_dim + c->v_head_dim) * from.stride,
                                .type = from.type};
        if (size == 0) continue;
        *to = (latent_key_rows){.data = at,
                                .head = (int64_t)size / c->num_attention_heads,
                                .type = kept_type(from.type)};
        at += size;
    }
}

bool latent_keys_open(latent_keys *keys, const dsmoe_model *model, int n_threads)
{
    const dsmoe_config *c = &model->config;
    *keys = (latent_keys){0};
    if (!config_is_latent(c) || model->weights->kv_b_split) return true;
    keys->size = latent_keys_size(model);
    keys->layers = calloc((size_t)c->num_hidden_layers, sizeof *keys->layers);
    float *row = calloc((size_t)(n_threads * c->kv_lora_rank), sizeof *row);
    if (keys->size > 0) keys->memory = memory_reserve(keys->size);
    bool enough = keys->layers && row && (keys->memory || keys->size == 0);
    if (enough) {
        copy_job job = {.model = model, .keys = keys, .row = row};
        place_layers(keys, model);
        threads_for(n_threads, c->num_hidden_layers * c->num_attention_heads, copy_task, &job);
    }
    free(row);
    return enough;
}

void latent_keys_close(latent_keys *keys)
{
    memory_release(keys->memory, keys->size);
    free(keys->layers);
    *keys = (latent_keys){0};
}

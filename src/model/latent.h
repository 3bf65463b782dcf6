/* latent.h - shared by the files of latent attention.
 *
 * A token's row in the cache is (normed latent | rotated rope part of its key), one for all heads. Head h
 * makes a key and a value from it, (k | v) = (W_k | W_v) · latent, both parts of kv_b_proj. Two forms
 * compute the same:
 *   expanded   k and v are made for every row, then attention is as usual: latent_expanded.c
 *   absorbed   q·(W_k c) = (W_kᵀ q)·c and Σ a·(W_v c) = W_v (Σ a·c), so that rows themselves are keys and
 *              values of all heads: latent_absorbed.c */
#ifndef DSMOE_MODEL_LATENT_H
#define DSMOE_MODEL_LATENT_H

#include "model/config.h"
#include "model/pass.h"

typedef struct latent_shape {
    int64_t heads;
    int64_t nope, rope, value; /* numbers of a head */
    int64_t head;              /* nope + rope */
    int64_t rank;              /* numbers of a latent */
    int64_t width;             /* rank + rope: of a row in the cache */
} latent_shape;

static inline latent_shape latent_shape_of(const dsmoe_config *c)
{
    return (latent_shape){.heads = c->num_attention_heads,
                          .nope = c->qk_nope_head_dim,
                          .rope = c->qk_rope_head_dim,
                          .value = c->v_head_dim,
                          .head = config_head_dim(c),
                          .rank = c->kv_lora_rank,
                          .width = c->kv_lora_rank + c->qk_rope_head_dim};
}

/* The queries of all rows of a pass, and their answers. */
typedef struct latent_job {
    const pass *pass;
    latent_shape shape;
    int64_t layer;
    thread_scratch *products;
    float *q;       /* [n_rows, heads · head], rotated and scaled */
    float *answers; /* [n_rows, heads · value] */
} latent_job;

static inline const layer_weights *latent_weights(const latent_job *job)
{
    return &job->pass->model->weights->layers[job->layer];
}

/* Whether there are k_b_proj and v_b_proj instead of kv_b_proj. */
static inline bool latent_is_split(const latent_job *job)
{
    return job->pass->model->weights->kv_b_split;
}

/* The rows of weights that make the values of one head. */
static inline matrix latent_values_of(const latent_job *job, int64_t head)
{
    const layer_weights *w = latent_weights(job);
    latent_shape s = job->shape;
    if (latent_is_split(job)) return matrix_from(w->v_b_proj, head * s.value);
    return matrix_from(w->kv_b_proj, head * (s.nope + s.value) + s.nope);
}

/* The row of a position; the later rows of the same page follow it. */
static inline unsigned char *latent_row_at(const latent_job *job, const kv_cache *cache,
                                           int64_t position)
{
    return kv_cache_rows(cache, job->layer, position / KV_PAGE, 0) +
           position % KV_PAGE * cache->pages->layers[job->layer].row;
}

/* Whether the rows of a span are answered in the expanded form. */
bool latent_is_expanded(const latent_job *job, const span *s);

/* absorbed_forward and expanded_forward each process all spans of their form. */
typedef struct absorbed_space absorbed_space;
absorbed_space *absorbed_place(arena *a, const dsmoe_model *model, int n_threads);
void absorbed_forward(const latent_job *job, absorbed_space *space);

typedef struct expanded_space expanded_space;
expanded_space *expanded_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads);
void expanded_forward(const latent_job *job, expanded_space *space);

/* Rows of the cache that are expanded together. */
enum { EXPANDED_KEYS = 512 };

#endif

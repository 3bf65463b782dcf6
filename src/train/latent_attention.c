/* latent_attention.c - from x to queries, keys and values in DeepSeek-V2 and V3, and back:
 *
 *   q = q_proj(x), or q_b_proj(norm(q_a_proj(x)));  (latent | k_rope) = kv_a_proj(x)
 *   (k_nope | v) of each head = kv_b_proj(norm(latent));  k = (k_nope | k_rope), k_rope in all heads
 *
 * The last rope numbers of a head are rotated by their position, in neighbouring pairs. The norms are
 * computed again in backward rather than kept. */
#include "train/latent_attention.h"

#include <string.h>

#include "base/threads.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/rope.h"
#include "train/linear_backward.h"

static int64_t count_tokens(const attention_batch *b)
{
    return b->n_sequences * b->sequence_length;
}

static int64_t kv_width(const dsmoe_config *c)
{
    return c->num_attention_heads * (c->qk_nope_head_dim + c->v_head_dim);
}

latent_space latent_place(arena *a, const attention_batch *b)
{
    const dsmoe_config *c = b->config;
    int64_t n = count_tokens(b), latent = c->kv_lora_rank, rank = c->q_lora_rank;
    int64_t wider = latent > rank ? latent : rank;
    return (latent_space){
        .norm = norm_place(a, b->kernels, n, latent, CONFIG_LATENT_EPS, b->n_threads),
        .q_norm = norm_place(a, b->kernels, n, rank, CONFIG_LATENT_EPS, b->n_threads),
        .kv = arena_take(a, n, (size_t)kv_width(c) * sizeof(float)),
        .k_rope = arena_take(a, n * c->qk_rope_head_dim, sizeof(float)),
        .normed = arena_take(a, n * wider, sizeof(float)),
        .d_normed = arena_take(a, n * wider, sizeof(float)),
    };
}

/* ---- heads and their parts ------------------------------------------------------------------- */

typedef struct latent_job {
    const attention_batch *batch;
    const attention_saved *heads; /* q, k, v, or their gradients */
    const latent_space *space;
    float scale;
} latent_job;

/* Rotates the queries of a token by its position, or their gradients back. */
static void turn_queries(const latent_job *j, int64_t token, const float *cosines,
                         const float *sines)
{
    const dsmoe_config *c = j->batch->config;
    int64_t dim = config_head_dim(c), row = dim * c->num_attention_heads;
    float *q = j->heads->q + token * row;
    for (int64_t h = 0; h < c->num_attention_heads; h++)
        rope_turn_pairs(c->qk_rope_head_dim, cosines, sines, q + h * dim + c->qk_nope_head_dim);
    j->batch->kernels->scale(row, j->scale, q);
}

static void copy(float *to, const float *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* For one token: makes q, k and v of the heads from the results of the products. */
static void join_task(void *context, int64_t token, int thread)
{
    (void)thread;
    const latent_job *j = context;
    const dsmoe_config *c = j->batch->config;
    int64_t nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, v = c->v_head_dim;
    int64_t at = attention_position(j->batch, token) * (rope / 2);
    const float *cosines = j->batch->cos + at, *sines = j->batch->sin + at;
    float *k_rope = j->space->k_rope + token * rope;
    turn_queries(j, token, cosines, sines);
    rope_turn_pairs(rope, cosines, sines, k_rope);
    for (int64_t h = 0; h < c->num_attention_heads; h++) {
        int64_t head = token * c->num_attention_heads + h;
        const float *kv = j->space->kv + head * (nope + v);
        float *k = j->heads->k + head * (nope + rope);
        copy(k, kv, nope);
        copy(k + nope, k_rope, rope);
        copy(j->heads->v + head * v, kv + nope, v);
    }
}

/* The reverse: makes gradients of the products from those of the heads. The part that all heads share gets
 * the sum of its gradients. */
static void part_task(void *context, int64_t token, int thread)
{
    (void)thread;
    const latent_job *j = context;
    const dsmoe_config *c = j->batch->config;
    int64_t nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, v = c->v_head_dim;
    int64_t at = attention_position(j->batch, token) * (rope / 2);
    const float *cosines = j->batch->cos + at, *sines = j->batch->sin_back + at;
    float *k_rope = j->space->k_rope + token * rope;
    turn_queries(j, token, cosines, sines);
    memset(k_rope, 0, (size_t)rope * sizeof *k_rope);
    for (int64_t h = 0; h < c->num_attention_heads; h++) {
        int64_t head = token * c->num_attention_heads + h;
        float *kv = j->space->kv + head * (nope + v);
        const float *k = j->heads->k + head * (nope + rope);
        copy(kv, k, nope);
        copy(kv + nope, j->heads->v + head * v, v);
        j->batch->kernels->axpy(rope, 1.0f, k + nope, k_rope);
    }
    rope_turn_pairs(rope, cosines, sines, k_rope);
}

/* ---- forward ------------------------------------------------------------------------------- */

void latent_forward(const attention_batch *b, const layer_weights *w, const float *x,
                    const attention_saved *saved, const latent_space *s, thread_scratch *threads)
{
    const dsmoe_config *c = b->config;
    int64_t n = count_tokens(b), hidden = c->hidden_size, latent = c->kv_lora_rank;
    int64_t rank = c->q_lora_rank, q_width = c->num_attention_heads * config_head_dim(c);
    rows in = {x, hidden, NULL};
    const product first[] = {
        {in, n, hidden, w->kv_a_proj, NULL, latent, saved->latent},
        {in, n, hidden, matrix_from(w->kv_a_proj, latent), NULL, c->qk_rope_head_dim, s->k_rope},
        {in, n, hidden, rank ? w->q_a_proj : w->q_proj.weight, NULL, rank ? rank : q_width,
         rank ? saved->q_a : saved->q},
    };
    linear_run(first, 3, threads, b->n_threads);
    norm_forward(&s->norm, saved->latent, w->kv_a_layernorm, s->normed);
    const product kv = {
        {s->normed, latent, NULL}, n, latent, w->kv_b_proj, NULL, kv_width(c), s->kv};
    linear_run(&kv, 1, threads, b->n_threads);
    if (rank) {
        norm_forward(&s->q_norm, saved->q_a, w->q_a_layernorm, s->normed);
        const product q = {{s->normed, rank, NULL}, n, rank, w->q_b_proj, NULL, q_width, saved->q};
        linear_run(&q, 1, threads, b->n_threads);
    }
    latent_job job = {b, saved, s, (float)rope_score_scale(c)};
    threads_for(b->n_threads, n, join_task, &job);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* y = W·norm(x): from dy to dx and the gradients of both weights. */
typedef struct norm_linear {
    const norm_rows *norm;
    const float *x, *norm_weight;
    linear_gradient linear;
    float *dx, *d_norm_weight;
} norm_linear;

static void norm_linear_backward(const norm_linear *l, const attention_batch *b,
                                 const latent_space *s, thread_scratch *threads, float *t)
{
    const norm_rows *norm = l->norm;
    norm_forward(norm, l->x, l->norm_weight, s->normed);
    linear_backward(&(linear_backward_job){.n_rows = norm->n_rows,
                                           .n_in = norm->width,
                                           .x = s->normed,
                                           .layers = &l->linear,
                                           .n_layers = 1,
                                           .dx = s->d_normed,
                                           .threads = threads,
                                           .n_threads = norm->n_threads,
                                           .low_rank = b->low_rank,
                                           .t = t});
    memset(l->dx, 0, (size_t)(norm->n_rows * norm->width) * sizeof *l->dx);
    norm_backward(norm, l->x, l->norm_weight, s->d_normed, l->dx, l->d_norm_weight);
}

static linear_gradient gradient_of(matrix w, int64_t n_out, const float *dy, matrix gradient)
{
    return (linear_gradient){w, n_out, dy, (float *)gradient.data, NULL};
}

/* matrix_from for a gradient that may have no memory. */
static matrix rows_after(matrix gradient, int64_t first)
{
    return gradient.data ? matrix_from(gradient, first) : gradient;
}

void latent_backward(const attention_batch *b, const layer_weights *w, const float *x,
                     const attention_saved *saved, const attention_saved *d, float *dx,
                     const layer_weights *g, const latent_space *s, thread_scratch *threads,
                     float *t)
{
    const dsmoe_config *c = b->config;
    int64_t n = count_tokens(b), latent = c->kv_lora_rank, rank = c->q_lora_rank;
    int64_t q_width = c->num_attention_heads * config_head_dim(c);
    latent_job job = {b, d, s, (float)rope_score_scale(c)};
    threads_for(b->n_threads, n, part_task, &job);
    const norm_linear kv = {
        &s->norm,          saved->latent,
        w->kv_a_layernorm, gradient_of(w->kv_b_proj, kv_width(c), s->kv, g->kv_b_proj),
        d->latent,         g->kv_a_layernorm};
    norm_linear_backward(&kv, b, s, threads, t);
    const norm_linear q = {&s->q_norm,       saved->q_a,
                           w->q_a_layernorm, gradient_of(w->q_b_proj, q_width, d->q, g->q_b_proj),
                           d->q_a,           g->q_a_layernorm};
    if (rank) norm_linear_backward(&q, b, s, threads, t);
    const linear_gradient first[] = {
        rank ? gradient_of(w->q_a_proj, rank, d->q_a, g->q_a_proj)
             : gradient_of(w->q_proj.weight, q_width, d->q, g->q_proj.weight),
        gradient_of(w->kv_a_proj, latent, d->latent, g->kv_a_proj),
        gradient_of(matrix_from(w->kv_a_proj, latent), c->qk_rope_head_dim, s->k_rope,
                    rows_after(g->kv_a_proj, latent)),
    };
    linear_backward(&(linear_backward_job){.n_rows = n,
                                           .n_in = c->hidden_size,
                                           .x = x,
                                           .layers = first,
                                           .n_layers = 3,
                                           .dx = dx,
                                           .threads = threads,
                                           .n_threads = b->n_threads,
                                           .low_rank = b->low_rank,
                                           .t = t});
}

/* attention.c - causal attention of whole conversations:
 *
 *   p = softmax(q·kᵀ), where a query sees the keys of its conversation up to its own
 *   heads = p·v;  y = o_proj(heads)
 *   dv = pᵀ·do;  dp = do·vᵀ;  ds = p·(dp - Σ do·o);  dq = ds·k;  dk = dsᵀ·q
 *
 * Queries are handled in tiles of QUERIES, and p exists for one tile at a time: forward does not keep it,
 * backward computes it again. A tile looks at the keys from the first one that its first query sees up to
 * its last query. All other weights are zero, so half of the square is never computed. */
#include "train/attention.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/rope.h"
#include "moe/ints.h"
#include "train/latent_attention.h"
#include "train/linear_backward.h"

enum { QUERIES = 72 };

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct attention_space {
    thread_scratch *threads;
    float *p, *ds;     /* [n_threads, QUERIES, sequence_length] */
    attention_saved d; /* gradients */
    latent_space latent;
    float *t; /* for low-rank additions */
} attention_space;

/* How many numbers a token has in its queries, keys, values and head outputs. */
static int64_t q_width(const dsmoe_config *c)
{
    return config_head_dim(c) * c->num_attention_heads;
}

static int64_t k_width(const dsmoe_config *c)
{
    return config_head_dim(c) * c->num_key_value_heads;
}

static int64_t v_width(const dsmoe_config *c)
{
    return config_value_dim(c) * c->num_key_value_heads;
}

static int64_t heads_width(const dsmoe_config *c)
{
    return config_value_dim(c) * c->num_attention_heads;
}

static int64_t count_tokens(const attention_batch *b)
{
    return b->n_sequences * b->sequence_length;
}

/* A batch may have more of these rows than fit into memory; the arena detects that. */
static size_t row_size(int64_t width) { return (size_t)width * sizeof(float); }

attention_saved attention_saved_place(arena *a, const attention_batch *b)
{
    const dsmoe_config *c = b->config;
    int64_t n = count_tokens(b);
    return (attention_saved){
        .q = arena_take(a, n, row_size(q_width(c))),
        .k = arena_take(a, n, row_size(k_width(c))),
        .v = arena_take(a, n, row_size(v_width(c))),
        .heads = arena_take(a, n, row_size(heads_width(c))),
        .latent = arena_take(a, n, row_size(c->kv_lora_rank)),
        .q_a = arena_take(a, n, row_size(c->q_lora_rank)),
    };
}

/* The longest row of any operand. */
static int64_t longest(const dsmoe_config *c)
{
    int64_t all[] = {c->hidden_size, heads_width(c), c->kv_lora_rank, c->q_lora_rank,
                     config_head_dim(c)};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] > most) most = all[i];
    return most;
}

static attention_space space_place(arena *a, const attention_batch *b)
{
    int64_t block = b->n_threads * QUERIES * b->sequence_length;
    attention_space s = {
        .d = attention_saved_place(a, b),
        .threads =
            scratch_place(a, b->kernels, longest(b->config),
                          ints_size(b->x_forms, count_tokens(b), longest(b->config)), b->n_threads),
        .t = arena_take(a, linear_backward_floats(b->low_rank, count_tokens(b)), sizeof(float)),
        .p = arena_take(a, block, sizeof(float)),
        .ds = arena_take(a, block, sizeof(float)),
    };
    if (config_is_latent(b->config)) s.latent = latent_place(a, b);
    return s;
}

size_t attention_train_size(const attention_batch *batch)
{
    arena measure = arena_over(NULL);
    space_place(&measure, batch);
    return arena_size(&measure);
}

/* ---- rotary positions ----------------------------------------------------------------------- */

typedef struct attention_job {
    const attention_batch *batch;
    attention_saved saved;
    attention_space space;
    int64_t key_dim, value_dim;  /* of a head */
    int64_t q_row, k_row, v_row; /* how many numbers a token has */
    int64_t heads_row;
    int64_t group;    /* query heads that share a key head */
    int64_t n_blocks; /* query tiles in a sequence */
    float *q, *k;     /* what turn_task rotates */
    const float *sin; /* and in which direction */
    adapter_ranges ranges;
} attention_job;

static attention_job make_job(const attention_batch *b, attention_saved saved, void *workspace)
{
    const dsmoe_config *c = b->config;
    arena a = arena_over(workspace);
    return (attention_job){.batch = b,
                           .saved = saved,
                           .space = space_place(&a, b),
                           .key_dim = config_head_dim(c),
                           .value_dim = config_value_dim(c),
                           .q_row = q_width(c),
                           .k_row = k_width(c),
                           .v_row = v_width(c),
                           .heads_row = heads_width(c),
                           .group = c->num_attention_heads / c->num_key_value_heads,
                           .n_blocks = moe_parts(b->sequence_length, QUERIES)};
}

/* From now on the job's products include the adapter that is trained. */
static void adapt(attention_job *j)
{
    const attention_batch *b = j->batch;
    if (!b->low_rank) return;
    j->ranges = low_rank_ranges(b->low_rank, j->space.t);
    scratch_adapt(j->space.threads, b->n_threads, &j->ranges);
}

/* Rotates one token's queries and keys and scales its queries; or rotates their gradients back. */
static void turn_task(void *context, int64_t token, int thread)
{
    (void)thread;
    const attention_job *j = context;
    const dsmoe_config *c = j->batch->config;
    int64_t dim = j->key_dim, half = dim / 2, place = attention_position(j->batch, token);
    const float *cosines = j->batch->cos + place * half, *sines = j->sin + place * half;
    float *q = j->q + token * j->q_row, *k = j->k + token * j->k_row;
    rope_turn_fn *rope = j->batch->rope_pairs ? rope_turn_pairs : rope_turn;
    for (int64_t h = 0; h < c->num_attention_heads; h++) rope(dim, cosines, sines, q + h * dim);
    j->batch->kernels->scale(j->q_row, 1.0f / sqrtf((float)dim), q);
    for (int64_t h = 0; h < c->num_key_value_heads; h++) rope(dim, cosines, sines, k + h * dim);
}

static void turn(attention_job *j, float *q, float *k, const float *sin)
{
    j->q = q;
    j->k = k;
    j->sin = sin;
    threads_for(j->batch->n_threads, count_tokens(j->batch), turn_task, j);
}

/* ---- one tile of queries --------------------------------------------------------------------- */

/* Queries [first, end) of a head in a sequence that begins with token `row`, and the n_keys keys up to
 * `end` that they may see. q, heads, k and v are the offsets of the first query and the first key, in
 * saved values and in gradients. */
typedef struct query_block {
    int64_t row, first, end;
    int64_t n_keys;
    int64_t q, heads;
    int64_t k, v;
} query_block;

/* The first place in the sequence that the query at `place` sees. */
static int64_t first_visible(const attention_batch *b, int64_t row, int64_t place)
{
    return b->positions ? place - attention_position(b, row + place) : 0;
}

/* The keys of a tile that its query number `r` sees: in the row of p, from *from to before the returned
 * end. */
static int64_t visible_end(const attention_batch *b, const query_block *q, int64_t r, int64_t *from)
{
    int64_t skipped = q->end - q->n_keys; /* places before the tile's first key */
    *from = first_visible(b, q->row, q->first + r) - skipped;
    return q->first + r + 1 - skipped;
}

static query_block block_of(const attention_job *j, int64_t sequence, int64_t head, int64_t block)
{
    const attention_batch *b = j->batch;
    int64_t first = b->sequence_length * block / j->n_blocks, row = sequence * b->sequence_length;
    int64_t key_head = head / j->group, end = b->sequence_length * (block + 1) / j->n_blocks;
    int64_t key = first_visible(b, row, first);
    return (query_block){
        .row = row,
        .first = first,
        .end = end,
        .n_keys = end - key,
        .q = (row + first) * j->q_row + head * j->key_dim,
        .heads = (row + first) * j->heads_row + head * j->value_dim,
        .k = (row + key) * j->k_row + key_head * j->key_dim,
        .v = (row + key) * j->v_row + key_head * j->value_dim,
    };
}

/* Clears the weights of keys that a query does not see. */
static void clear_hidden(float *row, int64_t from, int64_t end, int64_t n_keys)
{
    memset(row, 0, (size_t)from * sizeof *row);
    memset(row + end, 0, (size_t)(n_keys - end) * sizeof *row);
}

/* p [queries, n_keys] of a tile. */
static void weigh(const attention_job *j, query_block b, gemm *g, float *p)
{
    const kernels *kn = j->batch->kernels;
    int64_t n = b.end - b.first;
    gemm_nt_load(g, (rows){j->saved.q + b.q, j->q_row, NULL}, n, j->key_dim);
    gemm_nt(g, matrix_f32(j->saved.k + b.k, j->k_row), b.n_keys, p, b.n_keys);
    for (int64_t r = 0; r < n; r++) {
        float *row = p + r * b.n_keys, max = -INFINITY, sum = 0.0f;
        int64_t from, end = visible_end(j->batch, &b, r, &from);
        kn->softmax_part(end - from, row + from, &max, &sum);
        kn->scale(end - from, 1.0f / sum, row + from);
        clear_hidden(row, from, end, b.n_keys);
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

static void attend_task(void *context, int64_t task, int thread)
{
    const attention_job *j = context;
    int64_t n_heads = j->batch->config->num_attention_heads;
    query_block b =
        block_of(j, task / j->n_blocks / n_heads, task / j->n_blocks % n_heads, task % j->n_blocks);
    float *p = j->space.p + thread * QUERIES * j->batch->sequence_length;
    gemm *g = &j->space.threads[thread].gemm;
    weigh(j, b, g, p);
    gemm_nn(g, (rows){p, b.n_keys, NULL}, b.end - b.first, (rows){j->saved.v + b.v, j->v_row, NULL},
            b.n_keys, j->value_dim, j->saved.heads + b.heads, j->heads_row, false);
}

/* Queries, keys and values, as backward needs them. */
static void project(attention_job *j, const layer_weights *w, const float *x)
{
    const attention_batch *b = j->batch;
    if (config_is_latent(b->config)) {
        latent_forward(b, w, x, &j->saved, &j->space.latent, j->space.threads);
        return;
    }
    int64_t hidden = b->config->hidden_size, n = count_tokens(b);
    rows in = {x, hidden, NULL};
    const product products[] = {
        {in, n, hidden, w->q_proj.weight, w->q_proj.bias, j->q_row, j->saved.q},
        {in, n, hidden, w->k_proj.weight, w->k_proj.bias, j->k_row, j->saved.k},
        {in, n, hidden, w->v_proj.weight, w->v_proj.bias, j->v_row, j->saved.v},
    };
    linear_run(products, 3, j->space.threads, b->n_threads);
    turn(j, j->saved.q, j->saved.k, b->sin);
}

void attention_train_forward(const attention_batch *b, const layer_weights *w, const float *x,
                             attention_saved saved, float *y, void *workspace)
{
    const dsmoe_config *c = b->config;
    attention_job j = make_job(b, saved, workspace);
    adapt(&j);
    project(&j, w, x);
    threads_for(b->n_threads, b->n_sequences * c->num_attention_heads * j.n_blocks, attend_task,
                &j);
    rows heads = {saved.heads, j.heads_row, NULL};
    const product out = {
        heads, count_tokens(b), j.heads_row, w->o_proj.weight, w->o_proj.bias, c->hidden_size, y};
    linear_run(&out, 1, j.space.threads, b->n_threads);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* ds of a tile, computed over dp. */
static void d_weigh(const attention_job *j, query_block b, gemm *g, const float *p, float *ds)
{
    int64_t n = b.end - b.first;
    gemm_nt_load(g, (rows){j->space.d.heads + b.heads, j->heads_row, NULL}, n, j->value_dim);
    gemm_nt(g, matrix_f32(j->saved.v + b.v, j->v_row), b.n_keys, ds, b.n_keys);
    for (int64_t r = 0; r < n; r++) {
        const float *o = j->saved.heads + b.heads + r * j->heads_row;
        const float *d = j->space.d.heads + b.heads + r * j->heads_row;
        float mean = 0.0f; /* Σ do·o is Σ p·dp */
        for (int64_t i = 0; i < j->value_dim; i++) mean += o[i] * d[i];
        int64_t from, end = visible_end(j->batch, &b, r, &from);
        float *row = ds + r * b.n_keys;
        j->batch->kernels->softmax_backward(end - from, p + r * b.n_keys + from, row + from, mean,
                                            row + from);
        clear_hidden(row, from, end, b.n_keys);
    }
}

static void d_block(const attention_job *j, query_block b, int thread)
{
    int64_t n = b.end - b.first;
    const attention_saved *d = &j->space.d;
    float *p = j->space.p + thread * QUERIES * j->batch->sequence_length;
    float *ds = j->space.ds + thread * QUERIES * j->batch->sequence_length;
    gemm *g = &j->space.threads[thread].gemm;
    weigh(j, b, g, p);
    d_weigh(j, b, g, p, ds);
    gemm_tn(g, (rows){p, b.n_keys, NULL}, b.n_keys, (rows){d->heads + b.heads, j->heads_row, NULL},
            j->value_dim, n, d->v + b.v, j->v_row, true);
    gemm_tn(g, (rows){ds, b.n_keys, NULL}, b.n_keys, (rows){j->saved.q + b.q, j->q_row, NULL},
            j->key_dim, n, d->k + b.k, j->k_row, true);
    gemm_nn(g, (rows){ds, b.n_keys, NULL}, n, (rows){j->saved.k + b.k, j->k_row, NULL}, b.n_keys,
            j->key_dim, d->q + b.q, j->q_row, false);
}

/* One key head of one sequence with all its queries, so that one thread adds up its dk and dv. */
static void d_attend_task(void *context, int64_t task, int thread)
{
    const attention_job *j = context;
    int64_t n_kv = j->batch->config->num_key_value_heads;
    int64_t sequence = task / n_kv, first_head = task % n_kv * j->group;
    query_block all = block_of(j, sequence, first_head, 0);
    for (int64_t r = 0; r < j->batch->sequence_length; r++) {
        memset(j->space.d.k + all.k + r * j->k_row, 0, (size_t)j->key_dim * sizeof(float));
        memset(j->space.d.v + all.v + r * j->v_row, 0, (size_t)j->value_dim * sizeof(float));
    }
    for (int64_t head = first_head; head < first_head + j->group; head++)
        for (int64_t block = 0; block < j->n_blocks; block++)
            d_block(j, block_of(j, sequence, head, block), thread);
}

static linear_gradient gradient_of(const linear *w, int64_t n_out, const float *dy, const linear *g)
{
    return (linear_gradient){w->weight, n_out, dy, (float *)g->weight.data, g->bias};
}

/* From the gradients of queries, keys and values to dx. */
static void d_project(attention_job *j, const layer_weights *w, const float *x, float *dx,
                      const layer_weights *gradients)
{
    const attention_batch *b = j->batch;
    const attention_saved *d = &j->space.d;
    if (config_is_latent(b->config)) {
        latent_backward(b, w, x, &j->saved, d, dx, gradients, &j->space.latent, j->space.threads,
                        j->space.t);
        return;
    }
    turn(j, d->q, d->k, b->sin_back);
    const linear_gradient in[] = {
        gradient_of(&w->q_proj, j->q_row, d->q, &gradients->q_proj),
        gradient_of(&w->k_proj, j->k_row, d->k, &gradients->k_proj),
        gradient_of(&w->v_proj, j->v_row, d->v, &gradients->v_proj),
    };
    linear_backward(&(linear_backward_job){.n_rows = count_tokens(b),
                                           .n_in = b->config->hidden_size,
                                           .x = x,
                                           .layers = in,
                                           .n_layers = 3,
                                           .dx = dx,
                                           .threads = j->space.threads,
                                           .n_threads = b->n_threads,
                                           .low_rank = b->low_rank,
                                           .t = j->space.t});
}

void attention_train_backward(const attention_batch *b, const layer_weights *w, const float *x,
                              attention_saved saved, const float *dy, float *dx,
                              const layer_weights *gradients, void *workspace)
{
    const dsmoe_config *c = b->config;
    attention_job j = make_job(b, saved, workspace);
    const linear_gradient out = gradient_of(&w->o_proj, c->hidden_size, dy, &gradients->o_proj);
    linear_backward(&(linear_backward_job){.n_rows = count_tokens(b),
                                           .n_in = j.heads_row,
                                           .x = saved.heads,
                                           .layers = &out,
                                           .n_layers = 1,
                                           .dx = j.space.d.heads,
                                           .threads = j.space.threads,
                                           .n_threads = b->n_threads,
                                           .low_rank = b->low_rank,
                                           .t = j.space.t});
    threads_for(b->n_threads, b->n_sequences * c->num_key_value_heads, d_attend_task, &j);
    d_project(&j, w, x, dx, gradients);
}

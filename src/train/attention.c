/* attention.c - causal attention of whole sequences:
 *
 *   p = softmax(q·kᵀ), each query seeing the keys up to its own;  heads = p·v;  y = o_proj(heads)
 *   dv = pᵀ·do;  dp = do·vᵀ;  ds = p·(dp - Σ do·o);  dq = ds·k;  dk = dsᵀ·q
 *
 * Queries go in blocks of QUERIES, for which p exists for a moment only: forward does not keep it,
 * backward makes it again. A block looks at the keys up to its last query, the rest being zeros, so
 * half of the square is never computed. */
#include "train/attention.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/rope.h"
#include "train/linear_backward.h"

enum { QUERIES = 72 };

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct attention_space {
    thread_scratch *threads;
    float *p, *ds;               /* [n_threads, QUERIES, sequence_length] */
    float *dq, *dk, *dv, *heads; /* gradients, as in attention_saved */
} attention_space;

static int64_t kv_width(const dsmoe_config *c)
{
    return config_head_dim(c) * c->num_key_value_heads;
}

static int64_t count_tokens(const attention_batch *b)
{
    return b->n_sequences * b->sequence_length;
}

attention_saved attention_saved_place(arena *a, const attention_batch *b)
{
    int64_t n = count_tokens(b), hidden = b->config->hidden_size, kv = kv_width(b->config);
    return (attention_saved){
        .q = arena_take(a, n * hidden, sizeof(float)),
        .k = arena_take(a, n * kv, sizeof(float)),
        .v = arena_take(a, n * kv, sizeof(float)),
        .heads = arena_take(a, n * hidden, sizeof(float)),
    };
}

static attention_space space_place(arena *a, const attention_batch *b)
{
    int64_t block = b->n_threads * QUERIES * b->sequence_length;
    attention_saved gradients = attention_saved_place(a, b);
    return (attention_space){
        .threads = scratch_place(a, b->kernels, b->config->hidden_size, 0, b->n_threads),
        .p = arena_take(a, block, sizeof(float)),
        .ds = arena_take(a, block, sizeof(float)),
        .dq = gradients.q,
        .dk = gradients.k,
        .dv = gradients.v,
        .heads = gradients.heads,
    };
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
    int64_t head_dim, group; /* query heads that share a key head */
    int64_t n_blocks;        /* of queries in a sequence */
    float *q, *k;            /* what turn_task turns, */
    const float *sin;        /* and which way */
} attention_job;

static attention_job make_job(const attention_batch *b, attention_saved saved, void *workspace)
{
    const dsmoe_config *c = b->config;
    arena a = arena_over(workspace);
    return (attention_job){.batch = b,
                           .saved = saved,
                           .space = space_place(&a, b),
                           .head_dim = config_head_dim(c),
                           .group = c->num_attention_heads / c->num_key_value_heads,
                           .n_blocks = moe_parts(b->sequence_length, QUERIES)};
}

/* One token: its queries are turned and scaled, its keys turned; or back, for their gradients. */
static void turn_task(void *context, int64_t token, int thread)
{
    (void)thread;
    const attention_job *j = context;
    const dsmoe_config *c = j->batch->config;
    int64_t dim = j->head_dim, half = dim / 2, place = token % j->batch->sequence_length;
    const float *cosines = j->batch->cos + place * half, *sines = j->sin + place * half;
    float *q = j->q + token * c->hidden_size, *k = j->k + token * kv_width(c);
    for (int64_t h = 0; h < c->num_attention_heads; h++)
        rope_turn(dim, cosines, sines, q + h * dim);
    j->batch->kernels->scale(c->hidden_size, 1.0f / sqrtf((float)dim), q);
    for (int64_t h = 0; h < c->num_key_value_heads; h++)
        rope_turn(dim, cosines, sines, k + h * dim);
}

static void turn(attention_job *j, float *q, float *k, const float *sin)
{
    j->q = q;
    j->k = k;
    j->sin = sin;
    threads_for(j->batch->n_threads, count_tokens(j->batch), turn_task, j);
}

/* ---- one block of queries -------------------------------------------------------------------- */

/* Queries [first, end) of a head in a sequence, with the keys [0, end). */
typedef struct query_block {
    int64_t first, end;
    int64_t query; /* where its first query lies in q, heads and their gradients */
    int64_t key;   /* where the sequence's first key lies in k, v and their gradients */
} query_block;

static query_block block_of(const attention_job *j, int64_t sequence, int64_t head, int64_t block)
{
    const attention_batch *b = j->batch;
    int64_t first = b->sequence_length * block / j->n_blocks, row = sequence * b->sequence_length;
    return (query_block){
        .first = first,
        .end = b->sequence_length * (block + 1) / j->n_blocks,
        .query = (row + first) * b->config->hidden_size + head * j->head_dim,
        .key = row * kv_width(b->config) + head / j->group * j->head_dim,
    };
}

/* p [queries, end] of a block. */
static void weigh(const attention_job *j, query_block q, gemm *g, float *p)
{
    const kernels *kn = j->batch->kernels;
    int64_t hidden = j->batch->config->hidden_size, n = q.end - q.first;
    gemm_nt_load(g, (rows){j->saved.q + q.query, hidden, NULL}, n, j->head_dim);
    gemm_nt(g, matrix_f32(j->saved.k + q.key, kv_width(j->batch->config)), q.end, p, q.end);
    for (int64_t r = 0; r < n; r++) {
        float *row = p + r * q.end, max = -INFINITY, sum = 0.0f;
        int64_t visible = q.first + r + 1;
        kn->softmax_part(visible, row, &max, &sum);
        kn->scale(visible, 1.0f / sum, row);
        memset(row + visible, 0, (size_t)(q.end - visible) * sizeof *row);
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

static void attend_task(void *context, int64_t task, int thread)
{
    const attention_job *j = context;
    const dsmoe_config *c = j->batch->config;
    int64_t n_heads = c->num_attention_heads;
    query_block q =
        block_of(j, task / j->n_blocks / n_heads, task / j->n_blocks % n_heads, task % j->n_blocks);
    float *p = j->space.p + thread * QUERIES * j->batch->sequence_length;
    gemm *g = &j->space.threads[thread].gemm;
    weigh(j, q, g, p);
    gemm_nn(g, (rows){p, q.end, NULL}, q.end - q.first,
            (rows){j->saved.v + q.key, kv_width(c), NULL}, q.end, j->head_dim,
            j->saved.heads + q.query, c->hidden_size, false);
}

void attention_train_forward(const attention_batch *b, const layer_weights *w, const float *x,
                             attention_saved saved, float *y, void *workspace)
{
    const dsmoe_config *c = b->config;
    int64_t hidden = c->hidden_size, kv = kv_width(c), n = count_tokens(b);
    attention_job j = make_job(b, saved, workspace);
    rows in = {x, hidden, NULL}, heads = {saved.heads, hidden, NULL};
    const product products[] = {
        {in, n, hidden, w->q_proj.weight, w->q_proj.bias, hidden, saved.q},
        {in, n, hidden, w->k_proj.weight, w->k_proj.bias, kv, saved.k},
        {in, n, hidden, w->v_proj.weight, w->v_proj.bias, kv, saved.v},
    };
    linear_run(products, 3, j.space.threads, b->n_threads);
    turn(&j, saved.q, saved.k, b->sin);
    threads_for(b->n_threads, b->n_sequences * c->num_attention_heads * j.n_blocks, attend_task,
                &j);
    const product out = {heads, n, hidden, w->o_proj.weight, w->o_proj.bias, hidden, y};
    linear_run(&out, 1, j.space.threads, b->n_threads);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* ds of a block, over dp. */
static void d_weigh(const attention_job *j, query_block q, gemm *g, const float *p, float *ds)
{
    int64_t hidden = j->batch->config->hidden_size, n = q.end - q.first;
    gemm_nt_load(g, (rows){j->space.heads + q.query, hidden, NULL}, n, j->head_dim);
    gemm_nt(g, matrix_f32(j->saved.v + q.key, kv_width(j->batch->config)), q.end, ds, q.end);
    for (int64_t r = 0; r < n; r++) {
        const float *o = j->saved.heads + q.query + r * hidden;
        const float *d = j->space.heads + q.query + r * hidden;
        float mean = 0.0f; /* Σ do·o is Σ p·dp */
        for (int64_t i = 0; i < j->head_dim; i++) mean += o[i] * d[i];
        int64_t visible = q.first + r + 1;
        float *row = ds + r * q.end;
        j->batch->kernels->softmax_backward(visible, p + r * q.end, row, mean, row);
        memset(row + visible, 0, (size_t)(q.end - visible) * sizeof *row);
    }
}

static void d_block(const attention_job *j, query_block q, int thread)
{
    int64_t hidden = j->batch->config->hidden_size, kv = kv_width(j->batch->config);
    int64_t n = q.end - q.first, dim = j->head_dim;
    float *p = j->space.p + thread * QUERIES * j->batch->sequence_length;
    float *ds = j->space.ds + thread * QUERIES * j->batch->sequence_length;
    gemm *g = &j->space.threads[thread].gemm;
    weigh(j, q, g, p);
    d_weigh(j, q, g, p, ds);
    gemm_tn(g, (rows){p, q.end, NULL}, q.end, (rows){j->space.heads + q.query, hidden, NULL}, dim,
            n, j->space.dv + q.key, kv, true);
    gemm_tn(g, (rows){ds, q.end, NULL}, q.end, (rows){j->saved.q + q.query, hidden, NULL}, dim, n,
            j->space.dk + q.key, kv, true);
    gemm_nn(g, (rows){ds, q.end, NULL}, n, (rows){j->saved.k + q.key, kv, NULL}, q.end, dim,
            j->space.dq + q.query, hidden, false);
}

/* One key head of one sequence with all its queries: the sums of dk and dv have one owner. */
static void d_attend_task(void *context, int64_t task, int thread)
{
    const attention_job *j = context;
    int64_t n_kv = j->batch->config->num_key_value_heads, kv = kv_width(j->batch->config);
    int64_t sequence = task / n_kv, first_head = task % n_kv * j->group;
    query_block all = block_of(j, sequence, first_head, 0);
    for (int64_t r = 0; r < j->batch->sequence_length; r++) {
        memset(j->space.dk + all.key + r * kv, 0, (size_t)j->head_dim * sizeof(float));
        memset(j->space.dv + all.key + r * kv, 0, (size_t)j->head_dim * sizeof(float));
    }
    for (int64_t head = first_head; head < first_head + j->group; head++)
        for (int64_t block = 0; block < j->n_blocks; block++)
            d_block(j, block_of(j, sequence, head, block), thread);
}

static linear_gradient gradient_of(const linear *w, int64_t n_out, const float *dy, const linear *g)
{
    return (linear_gradient){w->weight, n_out, dy, (float *)g->weight.data, g->bias};
}

void attention_train_backward(const attention_batch *b, const layer_weights *w, const float *x,
                              attention_saved saved, const float *dy, float *dx,
                              const layer_weights *gradients, void *workspace)
{
    const dsmoe_config *c = b->config;
    int64_t hidden = c->hidden_size, kv = kv_width(c);
    attention_job j = make_job(b, saved, workspace);
    const linear_gradient out = gradient_of(&w->o_proj, hidden, dy, &gradients->o_proj);
    linear_backward_job job = {.n_rows = count_tokens(b),
                               .n_in = hidden,
                               .x = saved.heads,
                               .layers = &out,
                               .n_layers = 1,
                               .dx = j.space.heads,
                               .threads = j.space.threads,
                               .n_threads = b->n_threads};
    linear_backward(&job);
    threads_for(b->n_threads, b->n_sequences * c->num_key_value_heads, d_attend_task, &j);
    turn(&j, j.space.dq, j.space.dk, b->sin_back);
    const linear_gradient in[] = {
        gradient_of(&w->q_proj, hidden, j.space.dq, &gradients->q_proj),
        gradient_of(&w->k_proj, kv, j.space.dk, &gradients->k_proj),
        gradient_of(&w->v_proj, kv, j.space.dv, &gradients->v_proj),
    };
    job.x = x;
    job.layers = in;
    job.n_layers = 3;
    job.dx = dx;
    linear_backward(&job);
}

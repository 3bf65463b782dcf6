/* attention.c - softmax(q·kᵀ / √d)·v, without the square of the sequence ever existing.
 *
 * A task takes the queries of some consecutive tokens for one key-value head (with grouped queries
 * several query heads share it) and walks over the cache in rounds of a few pages. The softmax runs
 * along: each round may raise the largest score, and then scales down what is summed so far. Memory
 * is that of a round, whatever the context; work stops at the last key a query may see.
 *
 * Few queries are limited by reading the cache: kernels take keys and values from there as they are
 * stored. Many are limited by arithmetic: pages become float32 first. */
#include "model/attention.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/rope.h"
#include "moe/ints.h"

enum {
    QUERY_ROWS = 128,    /* the most queries of a task */
    ROUND = 2 * KV_PAGE, /* keys of a round */
};

/* Some tokens of a span. */
typedef struct query_block {
    const span *span;
    int64_t first, n_tokens; /* within the span */
} query_block;

/* One thread's scratch. Queries are rows (token, query head). */
typedef struct attention_scratch {
    gemm gemm;
    float *q;         /* [queries, head_dim], scaled */
    float *scores;    /* [queries, ROUND] */
    float *sum_v;     /* [queries, head_dim] Σ e^score·v */
    float *max, *sum; /* [queries] */
    float *page;      /* [KV_PAGE, head_dim] of a cache that is not float32 */
} attention_scratch;

typedef struct attention_space {
    thread_scratch *products;
    attention_scratch *threads;
    query_block *blocks;
    float *q, *k, *v; /* [n_rows, heads · head_dim]; the result takes the place of q */
} attention_space;

typedef struct attention_job {
    const pass *pass;
    attention_space space;
    int64_t layer, head_dim;
    int64_t group;   /* query heads of a key-value head */
    int64_t n_parts; /* that they are cut into: see parts_of_group */
    int64_t n_blocks;
} attention_job;

/* What one task works on: query heads `head` … head + n_heads - 1, which share a key-value head, for
 * each token of a block. */
typedef struct queries {
    const kv_cache *cache;
    int64_t row, position; /* of the first token */
    int64_t n_tokens, head, n_heads, kv_head;
    int64_t n; /* n_tokens · n_heads */
} queries;

/* ---- memory -------------------------------------------------------------------------------- */

static int64_t tokens_per_block(int64_t group)
{
    return group >= QUERY_ROWS ? 1 : QUERY_ROWS / group;
}

static attention_scratch scratch_of(arena *a, const kernels *kn, int64_t head_dim)
{
    int64_t longest = head_dim > ROUND ? head_dim : ROUND;
    void *panels = arena_take(a, 1, gemm_scratch_size(kn, longest));
    return (attention_scratch){
        .gemm = a->base ? gemm_init(kn, longest, panels) : (gemm){0},
        .q = arena_take(a, QUERY_ROWS * head_dim, sizeof(float)),
        .scores = arena_take(a, QUERY_ROWS * ROUND, sizeof(float)),
        .sum_v = arena_take(a, QUERY_ROWS * head_dim, sizeof(float)),
        .max = arena_take(a, QUERY_ROWS, sizeof(float)),
        .sum = arena_take(a, QUERY_ROWS, sizeof(float)),
        .page = arena_take(a, KV_PAGE * head_dim, sizeof(float)),
    };
}

/* What x, and later the answers, of any layer may take in integers. */
static size_t ints_of_rows(const dsmoe_model *model, int64_t n_rows)
{
    unsigned forms = 0;
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++) {
        const block_weights *w = &model->weights->blocks[i];
        const linear *all[] = {&w->q_proj, &w->k_proj, &w->v_proj, &w->o_proj};
        for (int j = 0; j < 4; j++) forms |= ints_forms(model->kernels, all[j]->weight);
    }
    return ints_size(forms, n_rows, model->config.hidden_size);
}

static attention_space attention_place(arena *a, const dsmoe_model *model, int64_t n_rows,
                                       int n_threads)
{
    const dsmoe_config *c = &model->config;
    int64_t head_dim = config_head_dim(c);
    int64_t kv_size = head_dim * c->num_key_value_heads;
    attention_space s = {
        .products = scratch_place(a, model->kernels, c->hidden_size, ints_of_rows(model, n_rows),
                                  n_threads),
        .threads = arena_take(a, n_threads, sizeof(attention_scratch)),
        .blocks = arena_take(a, n_rows, sizeof(query_block)),
        .q = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .k = arena_take(a, n_rows * kv_size, sizeof(float)),
        .v = arena_take(a, n_rows * kv_size, sizeof(float)),
    };
    for (int i = 0; i < n_threads; i++) {
        attention_scratch one = scratch_of(a, model->kernels, head_dim);
        if (a->base) s.threads[i] = one;
    }
    return s;
}

size_t attention_size(const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    arena measure = arena_over(NULL);
    attention_place(&measure, model, n_rows, n_threads);
    return arena_size(&measure);
}

static const cache_kernels *cache_kernels_of(const attention_job *job, const kv_cache *cache)
{
    return &job->pass->model->kernels->caches[cache->type];
}

/* ---- into the cache ------------------------------------------------------------------------ */

/* Turns the query and the key of one row by its position; key and value join the cache. */
static void remember_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const attention_job *job = context;
    const pass *p = job->pass;
    const dsmoe_config *c = &p->model->config;
    const span *s = pass_span(p, row);
    void (*narrow)(int64_t, const float *, void *) = cache_kernels_of(job, s->cache)->narrow;
    int64_t d = job->head_dim, position = s->position + row - s->row;
    const float *cosines = p->cos + row * (d / 2), *sines = p->sin + row * (d / 2);
    float *q = job->space.q + row * c->hidden_size;
    float *k = job->space.k + row * d * c->num_key_value_heads;
    const float *v = job->space.v + row * d * c->num_key_value_heads;
    rope_turn_fn *turn = p->model->weights->rope_pairs ? rope_turn_pairs : rope_turn;
    for (int64_t h = 0; h < c->num_attention_heads; h++) turn(d, cosines, sines, q + h * d);
    for (int64_t h = 0; h < c->num_key_value_heads; h++, k += d, v += d) {
        int64_t page = position / KV_PAGE, at = position % KV_PAGE * s->cache->row;
        turn(d, cosines, sines, k);
        narrow(d, k, kv_cache_keys(s->cache, job->layer, page, h) + at);
        narrow(d, v, kv_cache_values(s->cache, job->layer, page, h) + at);
    }
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Few queries go through the cache page by page. */
static bool is_few(const attention_job *job, const queries *q)
{
    return q->n <= GEMM_FEW_GROUPS * job->pass->model->kernels->few;
}

/* n rows of a page of the queries' cache as float32. */
static const float *widened(const attention_job *job, attention_scratch *t, const queries *q,
                            const void *stored, int64_t n)
{
    dsmoe_dtype type = q->cache->type;
    if (type == DSMOE_F32) return stored;
    job->pass->model->kernels->dtypes[type].widen(n * job->head_dim, stored, t->page);
    return t->page;
}

/* Scores of n_keys keys from `first` on. */
static void score_keys(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first, int64_t n_keys)
{
    int64_t d = job->head_dim;
    if (!is_few(job, q)) gemm_nt_load(&t->gemm, (rows){t->q, d, NULL}, q->n, d);
    for (int64_t key = 0; key < n_keys; key += KV_PAGE) {
        int64_t page = (first + key) / KV_PAGE;
        const void *keys = kv_cache_keys(q->cache, job->layer, page, q->kv_head);
        int64_t n = moe_min(KV_PAGE, n_keys - key);
        if (is_few(job, q))
            cache_kernels_of(job, q->cache)
                ->dot_rows(q->n, t->q, keys, n, d, t->scores + key, ROUND,
                           kv_cache_values(q->cache, job->layer, page, q->kv_head));
        else
            gemm_nt(&t->gemm, matrix_f32(widened(job, t, q, keys, n), d), n, t->scores + key,
                    ROUND);
    }
}

/* Scores become weights; those of keys that a query may not see become 0. */
static void weigh_keys(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first, int64_t n_keys)
{
    const kernels *kn = job->pass->model->kernels;
    for (int64_t i = 0; i < q->n; i++) {
        float *weights = t->scores + i * ROUND, *sum_v = t->sum_v + i * job->head_dim;
        int64_t visible = q->position + i / q->n_heads + 1 - first;
        visible = visible < 0 ? 0 : moe_min(visible, n_keys);
        float factor = kn->softmax_part(visible, weights, &t->max[i], &t->sum[i]);
        memset(weights + visible, 0, (size_t)(n_keys - visible) * sizeof *weights);
        if (factor == 1.0f) continue;
        for (int64_t j = 0; j < job->head_dim; j++) sum_v[j] *= factor;
    }
}

static void add_values(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first, int64_t n_keys)
{
    int64_t d = job->head_dim, end = q->position + q->n_tokens;
    for (int64_t key = 0; key < n_keys; key += KV_PAGE) {
        int64_t page = (first + key) / KV_PAGE, n = moe_min(KV_PAGE, n_keys - key);
        const void *values = kv_cache_values(q->cache, job->layer, page, q->kv_head);
        if (!is_few(job, q)) {
            gemm_nn(&t->gemm, (rows){t->scores + key, ROUND, NULL}, q->n,
                    (rows){widened(job, t, q, values, n), d, NULL}, n, d, t->sum_v, d, true);
            continue;
        }
        const void *next = NULL; /* the first query reads from memory, the others from a cache */
        if ((page + 1) * KV_PAGE < end)
            next = kv_cache_keys(q->cache, job->layer, page + 1, q->kv_head);
        for (int64_t i = 0; i < q->n; i++, next = NULL)
            cache_kernels_of(job, q->cache)
                ->add_rows(n, t->scores + i * ROUND + key, values, d, t->sum_v + i * d, next);
    }
}

static queries queries_of(const attention_job *job, int64_t task)
{
    const dsmoe_config *c = &job->pass->model->config;
    int64_t per_block = c->num_key_value_heads * job->n_parts;
    const query_block *b = &job->space.blocks[task / per_block];
    int64_t kv_head = task % per_block / job->n_parts, part = task % job->n_parts;
    int64_t first = job->group * part / job->n_parts, end = job->group * (part + 1) / job->n_parts;
    return (queries){.cache = b->span->cache,
                     .row = b->span->row + b->first,
                     .position = b->span->position + b->first,
                     .n_tokens = b->n_tokens,
                     .head = kv_head * job->group + first,
                     .n_heads = end - first,
                     .kv_head = kv_head,
                     .n = b->n_tokens * (end - first)};
}

/* Where the queries' vectors lie among those of the pass. */
static float *query_at(const attention_job *job, const queries *q, int64_t i)
{
    int64_t row = q->row + i / q->n_heads, head = q->head + i % q->n_heads;
    return job->space.q + row * job->pass->model->config.hidden_size + head * job->head_dim;
}

/* Queries are gathered, answered, and the answers put in their place. */
static void attend_task(void *context, int64_t task, int thread)
{
    const attention_job *job = context;
    queries q = queries_of(job, task);
    attention_scratch *t = &job->space.threads[thread];
    int64_t d = job->head_dim, end = q.position + q.n_tokens;

    float scale = (float)(1.0 / sqrt((double)d));
    for (int64_t i = 0; i < q.n; i++) {
        const float *from = query_at(job, &q, i);
        for (int64_t j = 0; j < d; j++) t->q[i * d + j] = from[j] * scale;
        t->max[i] = -INFINITY;
        t->sum[i] = 0.0f;
    }
    memset(t->sum_v, 0, (size_t)(q.n * d) * sizeof *t->sum_v);

    int64_t round = is_few(job, &q) ? KV_PAGE : ROUND;
    for (int64_t first = 0; first < end; first += round) {
        int64_t n_keys = moe_min(round, end - first);
        score_keys(job, t, &q, first, n_keys);
        weigh_keys(job, t, &q, first, n_keys);
        add_values(job, t, &q, first, n_keys);
    }
    for (int64_t i = 0; i < q.n; i++) {
        float *to = query_at(job, &q, i);
        for (int64_t j = 0; j < d; j++) to[j] = t->sum_v[i * d + j] / t->sum[i];
    }
}

/* Later tokens see more keys: the longest tasks come first. */
static void cut_blocks(attention_job *job)
{
    int64_t size = tokens_per_block(job->group);
    for (int64_t i = job->pass->n_spans - 1; i >= 0; i--) {
        const span *s = &job->pass->spans[i];
        for (int64_t first = (s->n_rows - 1) / size * size; first >= 0; first -= size)
            job->space.blocks[job->n_blocks++] =
                (query_block){s, first, moe_min(size, s->n_rows - first)};
    }
}

/* Query heads of a group are cut where there are more than one task takes. So they are where few
 * queries would leave threads without a task: for those the result does not depend on who goes with
 * whom, and the second part finds keys and values in a cache that threads share. */
static int64_t parts_of_group(const attention_job *job)
{
    const pass *p = job->pass;
    int64_t n_tasks = job->n_blocks * p->model->config.num_key_value_heads, longest = 0;
    for (int64_t i = 0; i < job->n_blocks; i++)
        if (job->space.blocks[i].n_tokens > longest) longest = job->space.blocks[i].n_tokens;
    bool few = longest * job->group <= GEMM_FEW_GROUPS * p->model->kernels->few;
    if (!few || n_tasks >= p->n_threads) return moe_parts(job->group, QUERY_ROWS);
    return moe_min(job->group, (p->n_threads + n_tasks - 1) / n_tasks);
}

void attention_forward(pass *p, int64_t layer)
{
    const dsmoe_config *c = &p->model->config;
    const block_weights *w = &p->model->weights->blocks[layer];
    arena a = arena_over(p->phase);
    attention_job job = {.pass = p,
                         .space = attention_place(&a, p->model, p->n_rows, p->n_threads),
                         .layer = layer,
                         .head_dim = config_head_dim(c),
                         .group = c->num_attention_heads / c->num_key_value_heads};
    int64_t hidden = c->hidden_size, kv_size = job.head_dim * c->num_key_value_heads;
    attention_space *s = &job.space;
    rows x = {p->normed, hidden, NULL}, answers = {s->q, hidden, NULL};

    const product in[] = {
        {x, p->n_rows, hidden, w->q_proj.weight, w->q_proj.bias, hidden, s->q},
        {x, p->n_rows, hidden, w->k_proj.weight, w->k_proj.bias, kv_size, s->k},
        {x, p->n_rows, hidden, w->v_proj.weight, w->v_proj.bias, kv_size, s->v},
    };
    linear_show(in, 3, p->inputs);
    linear_run(in, 3, s->products, p->n_threads);
    threads_for(p->n_threads, p->n_rows, remember_task, &job);
    cut_blocks(&job);
    job.n_parts = parts_of_group(&job);
    threads_for(p->n_threads, job.n_blocks * c->num_key_value_heads * job.n_parts, attend_task,
                &job);
    const product out = {answers,        p->n_rows, hidden, w->o_proj.weight,
                         w->o_proj.bias, hidden,    p->y};
    linear_show(&out, 1, p->inputs);
    linear_run(&out, 1, s->products, p->n_threads);
}

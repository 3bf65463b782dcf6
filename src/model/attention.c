/* attention.c - softmax(q·kᵀ / √d)·v, without ever storing the scores of a whole sequence.
 *
 * A task takes the queries of some consecutive tokens for one key-value head (with grouped queries
 * several query heads share it) and walks over the cache in rounds of ROUND keys. The softmax is
 * computed on the way: a round that raises the largest score scales down the sums so far. Memory is
 * needed for one round only, whatever the context; work stops at the last key that a query may see.
 *
 * Rounds begin at position 0 and kernels add in a fixed order (see cache_kernels), only over the keys
 * that a query sees. So the result for a query depends only on its position and on the cache before it,
 * not on the tokens that came with it, the cut into tasks, the size of pages or the number of threads. */
#include "model/attention.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "model/config.h"
#include "model/latent_attention.h"
#include "model/linear.h"
#include "model/rope.h"
#include "moe/ints.h"

enum {
    QUERY_ROWS = 128, /* the most queries of a task */
    ROUND = 128,      /* keys of a round */
    BUSY = 8, /* tasks for each thread, if there are enough tokens, so that all end together */
    PIECE = KV_PAGE < ROUND ? KV_PAGE : ROUND, /* keys of a round that are in one page */
};
_Static_assert(ROUND % PIECE == 0 && KV_PAGE % PIECE == 0 && PIECE % KEY_GROUP == 0,
               "pieces fill rounds and pages");

/* Some consecutive tokens of a span. */
typedef struct query_run {
    const span *span;
    int64_t first, n_tokens; /* within the span */
} query_run;

/* One thread's scratch. Queries are rows (token, query head). */
typedef struct attention_scratch {
    float *q;         /* [queries, head_dim], scaled */
    float *scores;    /* [queries, ROUND] */
    float *part;      /* [queries, head_dim] Σ e^score·v of a round */
    float *sum_v;     /* [queries, head_dim] the same of all rounds so far */
    float *max, *sum; /* [queries] */
    int32_t *seen;    /* [queries] keys of a piece */
} attention_scratch;

typedef struct attention_space {
    thread_scratch *products;
    attention_scratch *threads;
    query_run *runs;
    float *q, *k, *v; /* [n_rows, heads · head_dim]; the result replaces q */
} attention_space;

typedef struct attention_job {
    const pass *pass;
    attention_space space;
    int64_t layer, head_dim;
    int64_t group;   /* query heads of a key-value head */
    int64_t n_parts; /* parts that these are cut into: see parts_of_group */
    int64_t n_runs;
} attention_job;

/* The queries of one task: query heads `head` … head + n_heads - 1, which share a key-value head, for
 * each token of a run. */
typedef struct queries {
    const kv_cache *cache;
    int64_t row, position; /* of the first token */
    int64_t n_tokens, head, n_heads, kv_head;
    int64_t n; /* n_tokens · n_heads */
} queries;

/* ---- memory -------------------------------------------------------------------------------- */

static attention_scratch scratch_of(arena *a, int64_t head_dim)
{
    return (attention_scratch){
        .q = arena_take(a, QUERY_ROWS * head_dim, sizeof(float)),
        .scores = arena_take(a, QUERY_ROWS * ROUND, sizeof(float)),
        .part = arena_take(a, QUERY_ROWS * head_dim, sizeof(float)),
        .sum_v = arena_take(a, QUERY_ROWS * head_dim, sizeof(float)),
        .max = arena_take(a, QUERY_ROWS, sizeof(float)),
        .sum = arena_take(a, QUERY_ROWS, sizeof(float)),
        .seen = arena_take(a, QUERY_ROWS, sizeof(int32_t)),
    };
}

/* The most memory that x, and later the answers, of a layer take as integers. */
static size_t ints_of_rows(const dsmoe_model *model, int64_t n_rows)
{
    unsigned forms = 0;
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++) {
        const layer_weights *w = &model->weights->layers[i];
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
        .runs = arena_take(a, n_rows, sizeof(query_run)),
        .q = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .k = arena_take(a, n_rows * kv_size, sizeof(float)),
        .v = arena_take(a, n_rows * kv_size, sizeof(float)),
    };
    for (int i = 0; i < n_threads; i++) {
        attention_scratch one = scratch_of(a, head_dim);
        if (a->base) s.threads[i] = one;
    }
    return s;
}

size_t attention_size(const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    if (config_is_latent(&model->config)) return latent_attention_size(model, n_rows, n_threads);
    arena measure = arena_over(NULL);
    attention_place(&measure, model, n_rows, n_threads);
    return arena_size(&measure);
}

static const cache_kernels *cache_kernels_of(const attention_job *job, const kv_cache *cache)
{
    return &job->pass->model->kernels->caches[cache->pages->type];
}

/* ---- tasks --------------------------------------------------------------------------------- */

/* The number of tokens in a run. Runs begin at multiples of it, so that different threads seldom write
 * keys of the same group. Large runs read the cache less often, small ones keep more threads busy. */
static int64_t tokens_per_run(const attention_job *job)
{
    const pass *p = job->pass;
    int64_t n_heads = p->model->config.num_key_value_heads, size = 1;
    while (2 * size * job->group <= QUERY_ROWS) size *= 2;
    while (size > KEY_GROUP && p->n_rows / size * n_heads < BUSY * p->n_threads) size /= 2;
    return size;
}

/* Later tokens see more keys, so the longest tasks come first. */
static void cut_runs(attention_job *job)
{
    int64_t size = tokens_per_run(job);
    for (int64_t i = job->pass->n_spans - 1; i >= 0; i--) {
        const span *s = &job->pass->spans[i];
        for (int64_t end = s->n_rows, first; end > 0; end = first) {
            first = end - 1 - (s->position + end - 1) % size;
            if (first < 0) first = 0;
            job->space.runs[job->n_runs++] = (query_run){s, first, end - first};
        }
    }
}

/* The query heads of a group are cut into parts if one task cannot take them all, or if threads would
 * have no task: a second part finds the keys and values in a processor cache that threads share. If there
 * are more threads than query heads of all sequences, some stay idle nevertheless, since a sequence's
 * keys are not divided among threads. */
static int64_t parts_of_group(const attention_job *job)
{
    const pass *p = job->pass;
    int64_t n_tasks = job->n_runs * p->model->config.num_key_value_heads;
    int64_t parts = moe_parts(job->group, QUERY_ROWS);
    if (n_tasks * parts >= p->n_threads) return parts;
    return moe_min(job->group, (p->n_threads + n_tasks - 1) / n_tasks);
}

static queries queries_of(const attention_job *job, int64_t task)
{
    const dsmoe_config *c = &job->pass->model->config;
    int64_t per_run = c->num_key_value_heads * job->n_parts;
    const query_run *b = &job->space.runs[task / per_run];
    int64_t kv_head = task % per_run / job->n_parts, part = task % job->n_parts;
    int64_t first = job->group * part / job->n_parts, end = job->group * (part + 1) / job->n_parts;
    return (queries){.cache = &b->span->cache,
                     .row = b->span->row + b->first,
                     .position = b->span->position + b->first,
                     .n_tokens = b->n_tokens,
                     .head = kv_head * job->group + first,
                     .n_heads = end - first,
                     .kv_head = kv_head,
                     .n = b->n_tokens * (end - first)};
}

/* ---- into the cache ------------------------------------------------------------------------ */

static unsigned char *keys_at(const attention_job *job, const kv_cache *cache, int64_t head,
                              int64_t position)
{
    return kv_cache_keys(cache, job->layer, position / KV_PAGE, head) +
           position % KV_PAGE * cache->pages->layers[job->layer].row;
}

static unsigned char *values_at(const attention_job *job, const kv_cache *cache, int64_t head,
                                int64_t position)
{
    return kv_cache_values(cache, job->layer, position / KV_PAGE, head) +
           position % KV_PAGE * cache->pages->layers[job->layer].row;
}

/* Rotates the keys of a run's tokens by their positions, for one head; stores keys and values in the
 * cache. */
static void remember_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const attention_job *job = context;
    const pass *p = job->pass;
    const dsmoe_config *c = &p->model->config;
    int64_t d = job->head_dim, n_heads = c->num_key_value_heads, head = task % n_heads;
    const query_run *b = &job->space.runs[task / n_heads];
    const kv_cache *cache = &b->span->cache;
    const cache_kernels *kn = cache_kernels_of(job, cache);
    rope_turn_fn *turn = p->model->weights->rope_pairs ? rope_turn_pairs : rope_turn;
    for (int64_t t = b->first; t < b->first + b->n_tokens; t++) {
        int64_t row = b->span->row + t, position = b->span->position + t;
        const float *cosines = p->cos + row * (d / 2), *sines = p->sin + row * (d / 2);
        float *k = job->space.k + (row * n_heads + head) * d;
        const float *v = job->space.v + (row * n_heads + head) * d;
        turn(d, cosines, sines, k);
        int64_t in_group = position % KEY_GROUP;
        kn->put_key(d, k, keys_at(job, cache, head, position - in_group), (int)in_group);
        kn->narrow(d, v, values_at(job, cache, head, position));
    }
}

/* ---- attention ----------------------------------------------------------------------------- */

/* The number of keys from `first` that query i sees, at most `most`. */
static int64_t seen_by(const queries *q, int64_t i, int64_t first, int64_t most)
{
    int64_t n = q->position + i / q->n_heads + 1 - first;
    return n < 0 ? 0 : moe_min(n, most);
}

static void see_piece(attention_scratch *t, const queries *q, int64_t first)
{
    for (int64_t i = 0; i < q->n; i++) t->seen[i] = (int32_t)seen_by(q, i, first, PIECE);
}

static void score_keys(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first, int64_t end)
{
    for (int64_t at = first; at < end; at += PIECE) {
        see_piece(t, q, at);
        cache_kernels_of(job, q->cache)
            ->score(q->n, t->q, t->seen, keys_at(job, q->cache, q->kv_head, at), job->head_dim,
                    t->scores + at - first, ROUND, values_at(job, q->cache, q->kv_head, at));
    }
}

/* Turns scores into weights, and scales down the sums so far to match them. */
static void weigh_keys(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first)
{
    const kernels *kn = job->pass->model->kernels;
    for (int64_t i = 0; i < q->n; i++) {
        int64_t n = seen_by(q, i, first, ROUND);
        if (n == 0) continue;
        float factor = kn->softmax_part(n, t->scores + i * ROUND, &t->max[i], &t->sum[i]);
        if (factor != 1.0f) kn->scale(job->head_dim, factor, t->sum_v + i * job->head_dim);
    }
}

/* Each round is summed from 0, so that rounding errors grow only with the number of rounds, not with the
 * length of the sequence. */
static void add_values(const attention_job *job, attention_scratch *t, const queries *q,
                       int64_t first, int64_t end)
{
    const kernels *kn = job->pass->model->kernels;
    int64_t d = job->head_dim;
    memset(t->part, 0, (size_t)(q->n * d) * sizeof *t->part);
    for (int64_t at = first; at < end; at += PIECE) {
        int64_t after = at + PIECE;
        const void *next = NULL;
        if (after < q->position + q->n_tokens) next = keys_at(job, q->cache, q->kv_head, after);
        see_piece(t, q, at);
        cache_kernels_of(job, q->cache)
            ->add(q->n, t->scores + at - first, ROUND, t->seen,
                  values_at(job, q->cache, q->kv_head, at), d, t->part, next);
    }
    for (int64_t i = 0; i < q->n; i++)
        if (seen_by(q, i, first, 1) > 0) kn->axpy(d, 1.0f, t->part + i * d, t->sum_v + i * d);
}

/* The place of query i in the pass. */
static float *query_at(const attention_job *job, const queries *q, int64_t i)
{
    int64_t row = q->row + i / q->n_heads, head = q->head + i % q->n_heads;
    return job->space.q + row * job->pass->model->config.hidden_size + head * job->head_dim;
}

/* Copies the queries to one place, rotated by their positions and scaled. */
static void gather(const attention_job *job, attention_scratch *t, const queries *q)
{
    const pass *p = job->pass;
    rope_turn_fn *turn = p->model->weights->rope_pairs ? rope_turn_pairs : rope_turn;
    int64_t d = job->head_dim;
    float scale = (float)(1.0 / sqrt((double)d));
    for (int64_t i = 0; i < q->n; i++) {
        int64_t row = q->row + i / q->n_heads;
        float *to = t->q + i * d;
        memcpy(to, query_at(job, q, i), (size_t)d * sizeof *to);
        turn(d, p->cos + row * (d / 2), p->sin + row * (d / 2), to);
        p->model->kernels->scale(d, scale, to);
    }
}

/* Gathers queries, computes their answers, and puts the answers in their place. */
static void attend_task(void *context, int64_t task, int thread)
{
    const attention_job *job = context;
    queries q = queries_of(job, task);
    attention_scratch *t = &job->space.threads[thread];
    int64_t d = job->head_dim, end = q.position + q.n_tokens;

    gather(job, t, &q);
    for (int64_t i = 0; i < q.n; i++) {
        t->max[i] = -INFINITY;
        t->sum[i] = 0.0f;
    }
    memset(t->sum_v, 0, (size_t)(q.n * d) * sizeof *t->sum_v);

    for (int64_t first = 0; first < end; first += ROUND) {
        int64_t round_end = moe_min(first + ROUND, end);
        score_keys(job, t, &q, first, round_end);
        weigh_keys(job, t, &q, first);
        add_values(job, t, &q, first, round_end);
    }
    for (int64_t i = 0; i < q.n; i++) {
        float *to = query_at(job, &q, i);
        for (int64_t j = 0; j < d; j++) to[j] = t->sum_v[i * d + j] / t->sum[i];
    }
}

static void plain_forward(pass *p, int64_t layer)
{
    const dsmoe_config *c = &p->model->config;
    const layer_weights *w = &p->model->weights->layers[layer];
    arena a = arena_over(p->phase);
    attention_job job = {.pass = p,
                         .space = attention_place(&a, p->model, p->n_rows, p->n_threads),
                         .layer = layer,
                         .head_dim = config_head_dim(c),
                         .group = c->num_attention_heads / c->num_key_value_heads};
    int64_t hidden = c->hidden_size, kv_size = job.head_dim * c->num_key_value_heads;
    attention_space *s = &job.space;
    rows x = {p->normed, hidden, NULL}, answers = {s->q, hidden, NULL};
    scratch_same_bits(s->products, p->n_threads, p->same_bits);
    scratch_adapt(s->products, p->n_threads, pass_adapters(p));
    bool all = !pass_may_narrow(p, layer); /* otherwise some rows need only keys and values */

    product in[] = {
        {x, p->n_rows, hidden, w->k_proj.weight, w->k_proj.bias, kv_size, s->k},
        {x, p->n_rows, hidden, w->v_proj.weight, w->v_proj.bias, kv_size, s->v},
        {x, p->n_rows, hidden, w->q_proj.weight, w->q_proj.bias, hidden, s->q},
    };
    linear_show(in, 3, p->inputs);
    linear_run(in, all ? 3 : 2, s->products, p->n_threads);
    cut_runs(&job);
    threads_for(p->n_threads, job.n_runs * c->num_key_value_heads, remember_task, &job);
    if (!all) {
        pass_narrow(p);
        if (p->n_rows == 0) return;
        in[2].n_rows = p->n_rows;
        linear_run(&in[2], 1, s->products, p->n_threads);
        job.n_runs = 0;
        cut_runs(&job);
    }
    job.n_parts = parts_of_group(&job);
    double start = clock_seconds();
    threads_for(p->n_threads, job.n_runs * c->num_key_value_heads * job.n_parts, attend_task, &job);
    p->attention_seconds += clock_seconds() - start;
    const product out = {answers,        p->n_rows, hidden, w->o_proj.weight,
                         w->o_proj.bias, hidden,    p->y};
    linear_show(&out, 1, p->inputs);
    linear_run(&out, 1, s->products, p->n_threads);
}

void attention_forward(pass *p, int64_t layer)
{
    if (config_is_latent(&p->model->config))
        latent_attention_forward(p, layer);
    else
        plain_forward(p, layer);
}

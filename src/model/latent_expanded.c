/* latent_expanded.c - latent attention in the expanded form, for long pieces of a prompt: rows of the cache become keys
 * and values of all heads, EXPANDED_KEYS of them at a time, and every query that sees some of these goes on with its
 * softmax. Memory is that of these rows, whatever the context. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/latent.h"
#include "model/linear.h"

enum {
    QUERY_ROWS = 128, /* the most queries of a task */
    ROUND = 128,      /* keys of a round */
};
_Static_assert(EXPANDED_KEYS % ROUND == 0 && EXPANDED_KEYS % KV_PAGE == 0 && ROUND % KEY_GROUP == 0,
               "rounds and pages fill what is expanded");

typedef struct expanded_scratch {
    float *q;      /* [QUERY_ROWS, head] */
    float *scores; /* [QUERY_ROWS, ROUND] */
    float *part;   /* [QUERY_ROWS, value] Σ e^score·v of a round, */
    float *sum_v;  /* and of all so far */
    float *k_b;    /* [rank, nope] one head of k_b_proj, where kv_b_proj is split */
} expanded_scratch;

struct expanded_space {
    expanded_scratch *threads;
    float *rows;   /* [EXPANDED_KEYS, width] of the cache */
    float *made;   /* [EXPANDED_KEYS, heads · (nope + value)], or two where kv_b_proj is split */
    float *keys;   /* [heads, EXPANDED_KEYS, head], in groups as a cache of float32 has them */
    float *values; /* [heads, EXPANDED_KEYS, value] */
    float *max, *sum; /* [n_rows, heads] */
};

/* Rows `first` … first + n - 1 of the cache for the queries of a span. */
typedef struct stretch_job {
    const latent_job *job;
    expanded_space *space;
    const span *span;
    int64_t first, n;
} stretch_job;

/* ---- memory -------------------------------------------------------------------------------- */

expanded_space *expanded_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    latent_shape s = latent_shape_of(&model->config);
    expanded_space *space = arena_take(a, 1, sizeof *space);
    expanded_space made = {
        .threads = arena_take(a, n_threads, sizeof(expanded_scratch)),
        .rows = arena_take(a, EXPANDED_KEYS * s.width, sizeof(float)),
        .made = arena_take(a, EXPANDED_KEYS * s.heads * (s.nope + s.value), sizeof(float)),
        .keys = arena_take(a, EXPANDED_KEYS * s.heads * s.head, sizeof(float)),
        .values = arena_take(a, EXPANDED_KEYS * s.heads * s.value, sizeof(float)),
        .max = arena_take(a, n_rows * s.heads, sizeof(float)),
        .sum = arena_take(a, n_rows * s.heads, sizeof(float)),
    };
    for (int i = 0; i < n_threads; i++) {
        expanded_scratch one = {.q = arena_take(a, QUERY_ROWS * s.head, sizeof(float)),
                                .scores = arena_take(a, QUERY_ROWS * ROUND, sizeof(float)),
                                .part = arena_take(a, QUERY_ROWS * s.value, sizeof(float)),
                                .sum_v = arena_take(a, QUERY_ROWS * s.value, sizeof(float))};
        if (model->weights->kv_b_split) one.k_b = arena_take(a, s.rank * s.nope, sizeof(float));
        if (a->base) made.threads[i] = one;
    }
    if (a->base) *space = made;
    return space;
}

/* ---- keys and values ----------------------------------------------------------------------- */

static void widen_task(void *context, int64_t page, int thread)
{
    (void)thread;
    const stretch_job *t = context;
    const latent_job *job = t->job;
    const kv_cache *cache = &t->span->cache;
    int64_t first = page * KV_PAGE, n = moe_min(KV_PAGE, t->n - first), width = job->shape.width;
    job->pass->model->kernels->dtypes[cache->pages->type].widen(
        n * width, latent_row_at(job, cache, t->first + first), t->space->rows + first * width);
}

/* Where keys, or values, lie that a product has made: those of a head, those of a row. */
typedef struct made_part {
    float *at;
    int64_t head, row; /* floats from one to the next */
} made_part;

static made_part made_keys(const stretch_job *t)
{
    latent_shape s = t->job->shape;
    if (latent_is_split(t->job)) return (made_part){t->space->made, s.nope, s.heads * s.nope};
    return (made_part){t->space->made, s.nope + s.value, s.heads * (s.nope + s.value)};
}

static made_part made_values(const stretch_job *t)
{
    latent_shape s = t->job->shape;
    made_part keys = made_keys(t);
    if (!latent_is_split(t->job)) return (made_part){keys.at + s.nope, keys.head, keys.row};
    return (made_part){keys.at + EXPANDED_KEYS * keys.row, s.value, s.heads * s.value};
}

/* The keys of one head, where they are made with k_b_proj: a sum over its rows. */
static void split_task(void *context, int64_t head, int thread)
{
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    matrix w = matrix_from(latent_weights(t->job)->k_b_proj, head * s.rank);
    float *k_b = t->space->threads[thread].k_b;
    made_part to = made_keys(t);
    for (int64_t i = 0; i < s.rank; i++)
        t->job->pass->model->kernels->dtypes[w.type].widen(s.nope, matrix_at(w, i, 0),
                                                           k_b + i * s.nope);
    for (int64_t i = 0; i < t->n; i += GEMM_ROWS)
        gemm_nn(&t->job->products[thread].gemm, (rows){t->space->rows + i * s.width, s.width, NULL},
                moe_min(GEMM_ROWS, t->n - i), (rows){k_b, s.nope, NULL}, s.rank, s.nope,
                to.at + head * to.head + i * to.row, to.row, false);
}

/* A group of keys, and their values, for one head. */
static void sort_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    int64_t head = task % s.heads, first = task / s.heads * KEY_GROUP;
    int64_t n = moe_min(KEY_GROUP, t->n - first);
    made_part keys = made_keys(t), values = made_values(t);
    float *group = t->space->keys + (head * EXPANDED_KEYS + first) * s.head;
    float *value = t->space->values + (head * EXPANDED_KEYS + first) * s.value;
    for (int64_t i = 0; i < n; i++) {
        const float *key = keys.at + (first + i) * keys.row + head * keys.head;
        const float *turned = t->space->rows + (first + i) * s.width + s.rank;
        for (int64_t k = 0; k < s.nope; k++) group[k * KEY_GROUP + i] = key[k];
        for (int64_t k = 0; k < s.rope; k++) group[(s.nope + k) * KEY_GROUP + i] = turned[k];
        memcpy(value + i * s.value, values.at + (first + i) * values.row + head * values.head,
               (size_t)s.value * sizeof *value);
    }
}

static void expand(stretch_job *t)
{
    const pass *p = t->job->pass;
    const layer_weights *w = latent_weights(t->job);
    latent_shape s = t->job->shape;
    bool split = latent_is_split(t->job);
    const product up = {{t->space->rows, s.width, NULL},
                        t->n,
                        s.rank,
                        split ? w->v_b_proj : w->kv_b_proj,
                        NULL,
                        s.heads * (split ? s.value : s.nope + s.value),
                        split ? made_values(t).at : t->space->made};
    threads_for(p->n_threads, moe_parts(t->n, KV_PAGE), widen_task, t);
    linear_run(&up, 1, t->job->products, p->n_threads);
    if (split) threads_for(p->n_threads, s.heads, split_task, t);
    threads_for(p->n_threads, moe_parts(t->n, KEY_GROUP) * s.heads, sort_task, t);
}

/* ---- queries ------------------------------------------------------------------------------- */

/* One head of some consecutive tokens: rows `row` … of the pass. */
typedef struct queries {
    int64_t row, n, position, head;
} queries;

/* Later tokens see more keys: the longest tasks come first. */
static queries queries_of(const stretch_job *t, int64_t task)
{
    const span *s = t->span;
    int64_t heads = t->job->shape.heads, end = s->n_rows - task / heads * QUERY_ROWS;
    int64_t first = end > QUERY_ROWS ? end - QUERY_ROWS : 0;
    return (queries){s->row + first, end - first, s->position + first, task % heads};
}

/* The queries in one place, and what became of them so far. */
static void gather(const stretch_job *t, const queries *q, expanded_scratch *to)
{
    const latent_job *job = t->job;
    latent_shape s = job->shape;
    for (int64_t i = 0; i < q->n; i++) {
        int64_t query = (q->row + i) * s.heads + q->head;
        memcpy(to->q + i * s.head, job->q + query * s.head, (size_t)s.head * sizeof *to->q);
        memcpy(to->sum_v + i * s.value, job->answers + query * s.value,
               (size_t)s.value * sizeof *to->sum_v);
    }
}

/* Keys from `first` on, counted from the stretch's first, up to a round of them. */
static void attend_round(const stretch_job *t, const queries *q, expanded_scratch *to,
                         int64_t first)
{
    const latent_job *job = t->job;
    const kernels *kn = job->pass->model->kernels;
    const cache_kernels *ck = &kn->caches[DSMOE_F32];
    latent_shape s = job->shape;
    int64_t most = moe_min(ROUND, t->n - first), at = q->head * EXPANDED_KEYS + first;
    int32_t seen[QUERY_ROWS];
    for (int64_t i = 0; i < q->n; i++) {
        int64_t n = q->position + i + 1 - t->first - first;
        seen[i] = (int32_t)(n < 0 ? 0 : moe_min(n, most));
    }
    if (seen[q->n - 1] == 0) return;
    ck->score(q->n, to->q, seen, t->space->keys + at * s.head, s.head, to->scores, ROUND, NULL);
    for (int64_t i = 0; i < q->n; i++) {
        int64_t query = (q->row + i) * s.heads + q->head;
        if (seen[i] == 0) continue;
        float factor = kn->softmax_part(seen[i], to->scores + i * ROUND, &t->space->max[query],
                                        &t->space->sum[query]);
        if (factor != 1.0f) kn->scale(s.value, factor, to->sum_v + i * s.value);
    }
    memset(to->part, 0, (size_t)(q->n * s.value) * sizeof *to->part);
    ck->add(q->n, to->scores, ROUND, seen, t->space->values + at * s.value, s.value, to->part,
            NULL);
    for (int64_t i = 0; i < q->n; i++)
        if (seen[i] > 0) kn->axpy(s.value, 1.0f, to->part + i * s.value, to->sum_v + i * s.value);
}

static void attend_task(void *context, int64_t task, int thread)
{
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    queries q = queries_of(t, task);
    expanded_scratch *to = &t->space->threads[thread];
    if (q.position + q.n <= t->first) return;
    gather(t, &q, to);
    for (int64_t first = 0; first < t->n; first += ROUND) attend_round(t, &q, to, first);
    for (int64_t i = 0; i < q.n; i++)
        memcpy(t->job->answers + ((q.row + i) * s.heads + q.head) * s.value,
               to->sum_v + i * s.value, (size_t)s.value * sizeof *to->sum_v);
}

/* ---- a span -------------------------------------------------------------------------------- */

static void begin_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    int64_t query = (t->span->row + row) * s.heads;
    for (int64_t i = query; i < query + s.heads; i++) {
        t->space->max[i] = -INFINITY;
        t->space->sum[i] = 0.0f;
    }
    memset(t->job->answers + query * s.value, 0, (size_t)(s.heads * s.value) * sizeof(float));
}

static void end_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    int64_t query = (t->span->row + row) * s.heads;
    for (int64_t i = query; i < query + s.heads; i++)
        t->job->pass->model->kernels->scale(s.value, 1.0f / t->space->sum[i],
                                            t->job->answers + i * s.value);
}

static void run_span(stretch_job *t)
{
    int n_threads = t->job->pass->n_threads;
    int64_t end = t->span->position + t->span->n_rows;
    int64_t n_tasks = moe_parts(t->span->n_rows, QUERY_ROWS) * t->job->shape.heads;
    threads_for(n_threads, t->span->n_rows, begin_task, t);
    for (t->first = 0; t->first < end; t->first += EXPANDED_KEYS) {
        t->n = moe_min(EXPANDED_KEYS, end - t->first);
        expand(t);
        threads_for(n_threads, n_tasks, attend_task, t);
    }
    threads_for(n_threads, t->span->n_rows, end_task, t);
}

void expanded_forward(const latent_job *job, expanded_space *space)
{
    for (int64_t i = 0; i < job->pass->n_spans; i++) {
        stretch_job t = {.job = job, .space = space, .span = &job->pass->spans[i]};
        if (t.span->n_rows > 0 && latent_is_expanded(job, t.span)) run_span(&t);
    }
}

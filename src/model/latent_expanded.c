/* latent_expanded.c - latent attention in the expanded form, for long pieces of a prompt. EXPANDED_KEYS
 * rows of the cache at a time are expanded to keys and values of all heads, and every query that sees
 * some of them continues its softmax. Memory is needed for these rows only, whatever the context. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/latent.h"
#include "model/linear.h"

enum { QUERY_ROWS = 128 }; /* the most queries of a task */
_Static_assert(EXPANDED_KEYS % LATENT_KEYS == 0 && EXPANDED_KEYS % KV_PAGE == 0,
               "panels and pages fill what is expanded");

typedef struct expanded_scratch {
    float *q;                       /* [QUERY_ROWS, head] */
    float *packed;                  /* q in the layout of kernels */
    float *rows;                    /* [LATENT_KEYS, head] keys of one head */
    float *key_panel, *value_panel; /* keys and values in the layout of kernels */
    float *scores;                  /* [QUERY_ROWS, LATENT_KEYS] */
    float *sum_v;                   /* [QUERY_ROWS, value] Σ e^score·v so far */
    float *k_b;                     /* [rank, nope] one head of k_b_proj, if kv_b_proj is split */
} expanded_scratch;

struct expanded_space {
    expanded_scratch *threads;
    float *rows;      /* [EXPANDED_KEYS, width] of the cache */
    float *made;      /* [EXPANDED_KEYS, heads · (nope + value)], or two if kv_b_proj is split */
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
        .max = arena_take(a, n_rows * s.heads, sizeof(float)),
        .sum = arena_take(a, n_rows * s.heads, sizeof(float)),
    };
    for (int i = 0; i < n_threads; i++) {
        expanded_scratch one = {
            .q = arena_take(a, QUERY_ROWS * s.head, sizeof(float)),
            .packed = arena_take(a, latent_floats(QUERY_ROWS, s.head), sizeof(float)),
            .rows = arena_take(a, LATENT_KEYS * s.head, sizeof(float)),
            .key_panel = arena_take(a, latent_panel_floats(s.head), sizeof(float)),
            .value_panel = arena_take(a, latent_panel_floats(s.value), sizeof(float)),
            .scores = arena_take(a, QUERY_ROWS * LATENT_KEYS, sizeof(float)),
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

/* Keys, or values, that a product has made, with the strides of heads and rows. */
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

/* Makes the keys of one head with k_b_proj: a sum over its rows. */
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
}

/* ---- queries ------------------------------------------------------------------------------- */

/* One head of some consecutive tokens: rows `row` … of the pass. */
typedef struct queries {
    int64_t row, n, position, head;
} queries;

/* Later tokens see more keys, so the longest tasks come first. */
static queries queries_of(const stretch_job *t, int64_t task)
{
    const span *s = t->span;
    int64_t heads = t->job->shape.heads, end = s->n_rows - task / heads * QUERY_ROWS;
    int64_t first = end > QUERY_ROWS ? end - QUERY_ROWS : 0;
    return (queries){s->row + first, end - first, s->position + first, task % heads};
}

/* Copies the queries to one place, and their sums so far. */
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

/* Makes panels of n keys of one head, counted from the stretch's first key, and of their values. */
static void load_keys(const stretch_job *t, const latent_kernels *lk, int64_t head, int64_t first,
                      int64_t n, expanded_scratch *to)
{
    latent_shape s = t->job->shape;
    made_part keys = made_keys(t), values = made_values(t);
    for (int64_t i = 0; i < n; i++) {
        float *row = to->rows + i * s.head;
        memcpy(row, keys.at + (first + i) * keys.row + head * keys.head,
               (size_t)s.nope * sizeof *row);
        memcpy(row + s.nope, t->space->rows + (first + i) * s.width + s.rank,
               (size_t)s.rope * sizeof *row);
    }
    lk->load_floats(n, to->rows, s.head, s.head, to->key_panel);
    lk->load_floats(n, values.at + first * values.row + head * values.head, values.row, s.value,
                    to->value_panel);
}

/* Attends to a panel of keys from `first`, counted from the stretch's first key. */
static void attend_panel(const stretch_job *t, const latent_kernels *lk, const queries *q,
                         expanded_scratch *to, int64_t first)
{
    const kernels *kn = t->job->pass->model->kernels;
    latent_shape s = t->job->shape;
    int64_t n = moe_min(LATENT_KEYS, t->n - first);
    int64_t before = q->position + 1 - t->first - first; /* keys that the first query sees */
    if (before + q->n - 1 <= 0) return;
    load_keys(t, lk, q->head, first, n, to);
    lk->score(q->n, to->packed, n, to->key_panel, s.head, to->scores, LATENT_KEYS,
              (latent_next){0});
    for (int64_t i = 0; i < q->n; i++) {
        int64_t query = (q->row + i) * s.heads + q->head;
        int64_t seen = before + i < 0 ? 0 : moe_min(before + i, n);
        float *row = to->scores + i * LATENT_KEYS;
        if (seen > 0) {
            float factor =
                kn->softmax_part(seen, row, &t->space->max[query], &t->space->sum[query]);
            if (factor != 1.0f) kn->scale(s.value, factor, to->sum_v + i * s.value);
        }
        memset(row + seen, 0, (size_t)(LATENT_KEYS - seen) * sizeof *row);
    }
    lk->add(q->n, to->scores, LATENT_KEYS, n, to->value_panel, s.value, to->sum_v, s.value);
}

static void attend_task(void *context, int64_t task, int thread)
{
    const stretch_job *t = context;
    latent_shape s = t->job->shape;
    queries q = queries_of(t, task);
    expanded_scratch *to = &t->space->threads[thread];
    const kernels *kn = t->job->pass->model->kernels;
    const latent_kernels *lk = &kn->latents[t->span->cache.pages->type];
    if (q.position + q.n <= t->first) return;
    gather(t, &q, to);
    lk->pack(q.n, to->q, s.head, to->packed);
    for (int64_t first = 0; first < t->n; first += LATENT_KEYS) attend_panel(t, lk, &q, to, first);
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

/* latent_absorbed.c - latent attention in the absorbed form: each row of the cache is key and value of
 * all heads, so that a decoded token reads each row once.
 *
 *   q'      = W_kᵀ q for each head, followed by the rope part of q
 *   scores  = q'·row, weights = softmax(scores), sums = Σ weights·latent
 *   answers = W_v · sums for each head
 *
 * The rows of a pass are taken in slices of a few tokens. Their contexts are cut into chunks at fixed
 * positions. Any free thread sums a chunk, starting from 0, and chunks are joined in order. So threads
 * share the context of a single token, and the result depends only on its position and on the cache
 * before it. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/latent.h"
#include "model/latent_keys.h"
#include "moe/octets.h"

enum {
    SLICE = 32,        /* tokens of a slice */
    QUERY_ROWS = 128,  /* the most queries of a task */
    WAVE = 4,          /* times QUERY_ROWS: queries in a wave for each thread */
    SHORT_CHUNK = 128, /* keys of a chunk: few at first, so that threads share a short context */
    CHUNK = 512,       /* more from position LONG, since joining takes time too */
    LONG_CHUNK = 1024, /* still more from position VERY_LONG */
    LONG = 1024,
    VERY_LONG = 8192,
};
_Static_assert((int)KV_PAGE == (int)LATENT_KEYS && SHORT_CHUNK % LATENT_KEYS == 0,
               "panels are pages");

static int64_t chunk_end(int64_t first)
{
    return first + (first < LONG ? SHORT_CHUNK : first < VERY_LONG ? CHUNK : LONG_CHUNK);
}

/* Some heads of some consecutive tokens of a span. */
typedef struct query_run {
    const span *span;
    int64_t position;       /* of the first token */
    int64_t first, n;       /* queries of the slice: rows (token, head) */
    int64_t heads_of_token; /* n is a multiple of it */
} query_run;

/* A run over the chunk that begins at `key`. The results of its queries are stored from `slot` on. */
typedef struct chunk_task {
    const query_run *run;
    int64_t key, slot;
} chunk_task;

/* The sums of queries, and the maxima that they are relative to. */
typedef struct soft_sums {
    float *latents; /* [rank] for each query: Σ e^(score - max)·latent */
    float *max, *sum;
} soft_sums;

typedef struct absorbed_scratch {
    float *packed, *panel;
    float *scores; /* [QUERY_ROWS, LATENT_KEYS] */
    float *q;      /* [SLICE, rank] of one head */
} absorbed_scratch;

struct absorbed_space {
    absorbed_scratch *threads;
    float *q;          /* [SLICE · heads, width] */
    soft_sums all;     /* [SLICE · heads] */
    soft_sums slots;   /* [n_slots] of chunks */
    query_run *runs;   /* [SLICE · heads] */
    chunk_task *tasks; /* [n_slots] of a wave */
    int64_t n_slots;
};

/* The slice that is being processed. */
typedef struct slice_job {
    const latent_job *job;
    absorbed_space *space;
    int64_t row, n_tokens; /* of the pass */
    int64_t n_runs, n_tasks;
} slice_job;

/* ---- memory -------------------------------------------------------------------------------- */

static soft_sums sums_place(arena *a, int64_t n, int64_t rank)
{
    return (soft_sums){.latents = arena_take(a, n * rank, sizeof(float)),
                       .max = arena_take(a, n, sizeof(float)),
                       .sum = arena_take(a, n, sizeof(float))};
}

absorbed_space *absorbed_place(arena *a, const dsmoe_model *model, int n_threads)
{
    latent_shape s = latent_shape_of(&model->config);
    int64_t n_slots = WAVE * QUERY_ROWS * (int64_t)n_threads;
    absorbed_space *space = arena_take(a, 1, sizeof *space);
    absorbed_space made = {.threads = arena_take(a, n_threads, sizeof(absorbed_scratch)),
                           .q = arena_take(a, SLICE * s.heads * s.width, sizeof(float)),
                           .all = sums_place(a, SLICE * s.heads, s.rank),
                           .slots = sums_place(a, n_slots, s.rank),
                           .runs = arena_take(a, SLICE * s.heads, sizeof(query_run)),
                           .tasks = arena_take(a, n_slots, sizeof(chunk_task)),
                           .n_slots = n_slots};
    for (int i = 0; i < n_threads; i++) {
        absorbed_scratch one = {
            .packed = arena_take(a, latent_floats(QUERY_ROWS, s.width), sizeof(float)),
            .panel = arena_take(a, latent_panel_floats(s.width), sizeof(float)),
            .scores = arena_take(a, QUERY_ROWS * LATENT_KEYS, sizeof(float)),
            .q = arena_take(a, SLICE * s.rank, sizeof(float)),
        };
        if (a->base) made.threads[i] = one;
    }
    if (a->base) *space = made;
    return space;
}

/* ---- into the latents' space, and out of it ------------------------------------------------ */

/* q' of one head, [n_tokens, rank]. */
static void absorb(const slice_job *slice, int64_t head, const float *q, int64_t stride, gemm *g,
                   float *made)
{
    const latent_job *job = slice->job;
    latent_shape s = job->shape;
    int64_t n = slice->n_tokens;
    if (latent_is_split(job)) {
        gemm_nt_load(g, (rows){q, stride, NULL}, n, s.nope);
        gemm_nt(g, matrix_from(latent_weights(job)->k_b_proj, head * s.rank), s.rank, made, s.rank);
        return;
    }
    const latent_key_rows *keys = &job->pass->latent_keys->layers[job->layer];
    int32_t all[SLICE];
    for (int64_t i = 0; i < n; i++) all[i] = (int32_t)s.nope;
    memset(made, 0, (size_t)(n * s.rank) * sizeof *made);
    job->pass->model->kernels->caches[keys->type].add(
        n, q, stride, all, keys->data + head * keys->head, s.rank, made, NULL);
}

/* Makes the queries of one head. */
static void absorb_task(void *context, int64_t head, int thread)
{
    const slice_job *slice = context;
    const latent_job *job = slice->job;
    latent_shape s = job->shape;
    int64_t stride = s.heads * s.head, n = slice->n_tokens;
    const float *q = job->q + slice->row * stride + head * s.head;
    float *made = slice->space->threads[thread].q;
    absorb(slice, head, q, stride, &job->products[thread].gemm, made);
    for (int64_t i = 0; i < n; i++) {
        float *to = slice->space->q + (i * s.heads + head) * s.width;
        memcpy(to, made + i * s.rank, (size_t)s.rank * sizeof *to);
        memcpy(to + s.rank, q + i * stride + s.nope, (size_t)s.rope * sizeof *to);
    }
}

/* Makes the answers of one head. */
static void answer_task(void *context, int64_t head, int thread)
{
    const slice_job *slice = context;
    const latent_job *job = slice->job;
    latent_shape s = job->shape;
    const soft_sums *all = &slice->space->all;
    for (int64_t i = 0; i < slice->n_tokens; i++) {
        int64_t query = i * s.heads + head;
        job->pass->model->kernels->scale(s.rank, 1.0f / all->sum[query],
                                         all->latents + query * s.rank);
    }
    gemm *g = &job->products[thread].gemm;
    gemm_nt_load(g, (rows){all->latents + head * s.rank, s.heads * s.rank, NULL}, slice->n_tokens,
                 s.rank);
    gemm_nt(g, latent_values_of(job, head), s.value,
            job->answers + (slice->row * s.heads + head) * s.value, s.heads * s.value);
}

/* ---- a chunk ------------------------------------------------------------------------------- */

/* The number of keys from `first` that query i of a run sees; negative if it ends before. */
static int64_t seen_by(const query_run *run, int64_t i, int64_t first)
{
    return run->position + i / run->heads_of_token + 1 - first;
}

static int64_t run_end(const query_run *run) { return seen_by(run, run->n - 1, 0); }

/* Turns the scores of n keys into weights, 0 for keys that a query does not see, and scales down the sums
 * so far to match them. */
static void weigh(const kernels *kn, const query_run *run, int64_t first, int64_t n, float *scores,
                  soft_sums to, int64_t rank)
{
    for (int64_t i = 0; i < run->n; i++) {
        int64_t seen = seen_by(run, i, first);
        float *row = scores + i * LATENT_KEYS;
        seen = seen < 0 ? 0 : moe_min(seen, n);
        if (seen > 0) {
            float factor = kn->softmax_part(seen, row, &to.max[i], &to.sum[i]);
            if (factor != 1.0f) kn->scale(rank, factor, to.latents + i * rank);
        }
        memset(row + seen, 0, (size_t)(LATENT_KEYS - seen) * sizeof *row);
    }
}

static soft_sums sums_from(soft_sums s, int64_t first, int64_t rank)
{
    return (soft_sums){s.latents + first * rank, s.max + first, s.sum + first};
}

static void chunk_run(void *context, int64_t index, int thread)
{
    const slice_job *slice = context;
    const latent_job *job = slice->job;
    const chunk_task *task = &slice->space->tasks[index];
    const query_run *run = task->run;
    const kernels *kn = job->pass->model->kernels;
    const kv_cache *cache = &run->span->cache;
    const latent_kernels *lk = &kn->latents[cache->pages->type];
    absorbed_scratch *t = &slice->space->threads[thread];
    latent_shape s = job->shape;
    soft_sums to = sums_from(slice->space->slots, task->slot, s.rank);
    int64_t end = moe_min(chunk_end(task->key), run_end(run));
    int64_t row = cache->pages->layers[job->layer].row;

    for (int64_t i = 0; i < run->n; i++) {
        to.max[i] = -INFINITY;
        to.sum[i] = 0.0f;
    }
    memset(to.latents, 0, (size_t)(run->n * s.rank) * sizeof *to.latents);
    lk->pack(run->n, slice->space->q + run->first * s.width, s.width, t->packed);
    for (int64_t first = task->key; first < end; first += LATENT_KEYS) {
        int64_t n = moe_min(LATENT_KEYS, end - first), after = first + LATENT_KEYS;
        latent_next next = {0};
        if (after < end)
            next = (latent_next){latent_row_at(job, cache, after),
                                 moe_min(LATENT_KEYS, end - after) * row};
        lk->load(n, latent_row_at(job, cache, first), s.width, t->panel);
        lk->score(run->n, t->packed, n, t->panel, s.width, t->scores, LATENT_KEYS, next);
        weigh(kn, run, first, n, t->scores, to, s.rank);
        lk->add(run->n, t->scores, LATENT_KEYS, n, t->panel, s.width, to.latents, s.rank);
    }
}

/* Joins the chunks of the wave that one query sees to its earlier sums. */
static void join_task(void *context, int64_t query, int thread)
{
    (void)thread;
    const slice_job *slice = context;
    const absorbed_space *space = slice->space;
    const kernels *kn = slice->job->pass->model->kernels;
    int64_t rank = slice->job->shape.rank;
    soft_sums all = sums_from(space->all, query, rank);
    for (int64_t i = 0; i < slice->n_tasks; i++) {
        const query_run *run = space->tasks[i].run;
        int64_t at = query - run->first;
        if (at < 0 || at >= run->n || seen_by(run, at, space->tasks[i].key) <= 0) continue;
        soft_sums part = sums_from(space->slots, space->tasks[i].slot + at, rank);
        float max = fmaxf(*all.max, *part.max);
        float old = expf(*all.max - max), new = expf(*part.max - max);
        *all.sum = *all.sum * old + *part.sum * new;
        *all.max = max;
        kn->scale(rank, old, all.latents);
        kn->axpy(rank, new, part.latents, all.latents);
    }
}

/* ---- a slice ------------------------------------------------------------------------------- */

/* Cuts the slice into runs. A run has all heads of some tokens or, if these are too many, some heads of one
 * token. */
static void cut_runs(slice_job *slice)
{
    int64_t heads = slice->job->shape.heads, parts = moe_parts(heads, QUERY_ROWS);
    int64_t most = heads < QUERY_ROWS ? QUERY_ROWS / heads : 1;
    slice->n_runs = 0;
    for (int64_t done = 0, n; done < slice->n_tokens; done += n) {
        const span *s = pass_span(slice->job->pass, slice->row + done);
        int64_t before = slice->row + done - s->row;
        n = moe_min(moe_min(most, slice->n_tokens - done), s->n_rows - before);
        for (int64_t part = 0; part < parts; part++) {
            int64_t first = heads * part / parts, end = heads * (part + 1) / parts;
            slice->space->runs[slice->n_runs++] = (query_run){.span = s,
                                                              .position = s->position + before,
                                                              .first = done * heads + first,
                                                              .n = n * (end - first),
                                                              .heads_of_token = end - first};
        }
    }
}

/* Runs the tasks of the wave, and joins their results. */
static void finish_wave(slice_job *slice)
{
    const latent_job *job = slice->job;
    threads_for(job->pass->n_threads, slice->n_tasks, chunk_run, slice);
    threads_for(job->pass->n_threads, slice->n_tokens * job->shape.heads, join_task, slice);
    slice->n_tasks = 0;
}

static void attend(slice_job *slice)
{
    absorbed_space *space = slice->space;
    int64_t n_queries = slice->n_tokens * slice->job->shape.heads, slot = 0;
    for (int64_t i = 0; i < n_queries; i++) {
        space->all.max[i] = -INFINITY;
        space->all.sum[i] = 0.0f;
    }
    memset(space->all.latents, 0,
           (size_t)(n_queries * slice->job->shape.rank) * sizeof *space->all.latents);
    for (int64_t i = 0; i < slice->n_runs; i++) {
        const query_run *run = &space->runs[i];
        for (int64_t key = 0; key < run_end(run); key = chunk_end(key)) {
            if (slot + run->n > space->n_slots) {
                finish_wave(slice);
                slot = 0;
            }
            space->tasks[slice->n_tasks++] = (chunk_task){run, key, slot};
            slot += run->n;
        }
    }
    finish_wave(slice);
}

/* Takes the next rows: skips spans in the expanded form, and stops before the next one or at SLICE tokens. */
static void take_rows(slice_job *slice)
{
    const pass *p = slice->job->pass;
    slice->n_tokens = 0;
    while (slice->n_tokens < SLICE && slice->row + slice->n_tokens < p->n_rows) {
        const span *s = pass_span(p, slice->row + slice->n_tokens);
        if (latent_is_expanded(slice->job, s)) {
            if (slice->n_tokens > 0) return;
            slice->row = s->row + s->n_rows;
            continue;
        }
        slice->n_tokens = moe_min(SLICE, s->row + s->n_rows - slice->row);
    }
}

static void make_octets(const latent_job *job)
{
    const layer_weights *w = latent_weights(job);
    octet_work octets = octets_begin(job->pass->model->kernels, job->pass->n_threads);
    if (latent_is_split(job)) {
        octets_want(&octets, w->k_b_proj);
        octets_want(&octets, w->v_b_proj);
    } else {
        octets_want(&octets, w->kv_b_proj);
    }
    octets_end(&octets);
}

void absorbed_forward(const latent_job *job, absorbed_space *space)
{
    int n_threads = job->pass->n_threads;
    slice_job slice = {.job = job, .space = space};
    for (take_rows(&slice); slice.n_tokens > 0; slice.row += slice.n_tokens, take_rows(&slice)) {
        make_octets(job);
        threads_for(n_threads, job->shape.heads, absorb_task, &slice);
        cut_runs(&slice);
        attend(&slice);
        threads_for(n_threads, job->shape.heads, answer_task, &slice);
    }
}

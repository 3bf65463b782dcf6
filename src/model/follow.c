/* follow.c - the other ranks of a model whose experts are divided: each receives the experts that it
 * holds, and runs them for rank 0.
 *
 * The experts have their own memory, with quantised matrices in the order that kernels read. Octets have
 * as many bytes as their rows, so they are stored in the rows' place, followed by rows that do not fill
 * an octet. No code reads single rows of an octet (products are cut at octets, see cut.h), so nothing is
 * stored twice. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/gemm_blocks.h"
#include "model/division.h"
#include "model/greet.h"
#include "model/serve_experts.h"

enum { THREADS_MAX = 1024 };

typedef struct follower {
    division division;
    const dsmoe_follow_options *options;
    int n_threads;
    const kernels *kernels;
    unsigned char *memory; /* of the experts and of `arrived` */
    size_t size;
    unsigned char *arrived; /* the rows of a matrix before octets are made of them */
    size_t arrived_size;
    octet_store *stores; /* of all octets */
    size_t n_stores;
    dsmoe_model *model;
    dsmoe_workspace workspace;
} follower;

static bool is_held(const follower *f, const cargo *c)
{
    return c->holder == f->division.peers->rank;
}

static bool has_octets(const follower *f, const cargo *c)
{
    return f->division.terms.keeps_octets && dtype_is_block(c->matrix->type) &&
           c->n_rows >= BLOCK_OCTET;
}

/* ---- memory -------------------------------------------------------------------------------------- */

typedef struct place_walk {
    follower *follower;
    arena arena; /* measures in a first walk, places in a second */
    size_t n_stores;
} place_walk;

static dsmoe_status place_visit(void *context, const cargo *c, dsmoe_error *error)
{
    place_walk *walk = context;
    follower *f = walk->follower;
    size_t size = cargo_size(c);
    (void)error;
    if (!is_held(f, c)) return DSMOE_OK;
    unsigned char *at = arena_take(&walk->arena, 1, size);
    c->matrix->data = at;
    if (!has_octets(f, c)) return DSMOE_OK;
    if (size > f->arrived_size) f->arrived_size = size;
    octet_store *store = f->stores ? &f->stores[walk->n_stores] : NULL;
    walk->n_stores++;
    if (!store) return DSMOE_OK;
    /* As if the matrix had been used already, so that its octets are not made again. */
    *store = (octet_store){.home = {at}, .n_uses = 2, .memory = at, .size = size};
    c->matrix->home = &store->home;
    return DSMOE_OK;
}

static void place(place_walk *walk)
{
    follower *f = walk->follower;
    division_each(&f->division, place_visit, walk, NULL);
    f->arrived = arena_take(&walk->arena, 1, f->arrived_size);
}

static dsmoe_status out_of_memory(size_t size, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory: %.1f GB for experts",
                       (double)size / 1e9);
}

/* Reserves only address space: memory is used when the experts arrive, and by then the claims have shown that
 * there is enough. */
static dsmoe_status reserve_experts(follower *f, dsmoe_error *error)
{
    place_walk measure = {.follower = f, .arena = arena_over(NULL)};
    place(&measure);
    f->size = arena_size(&measure.arena);
    f->stores = calloc(measure.n_stores + 1, sizeof *f->stores);
    f->memory = f->size && f->stores ? memory_reserve(f->size) : NULL;
    if (!f->memory) return out_of_memory(f->size, error);
    place_walk walk = {.follower = f, .arena = arena_over(f->memory)};
    place(&walk);
    return DSMOE_OK;
}

/* Makes the model over the experts, and memory to run them. */
static dsmoe_status make_model(follower *f, dsmoe_error *error)
{
    static const dsmoe_generation_config nothing;
    const division *d = &f->division;
    STATUS_TRY(model_over(&d->terms.config, &nothing, d->weights, f->kernels, &f->model, error));
    for (int64_t i = 0; i < d->terms.config.num_hidden_layers; i++)
        if (f->model->layers[i]) layer_join(f->model->layers[i], d->peers, d->terms.most_tokens);
    size_t size = serve_experts_size(f->model, f->n_threads);
    void *memory = size ? memory_reserve(size) : NULL;
    f->workspace = (dsmoe_workspace){memory, size, f->n_threads};
    return size && !memory ? out_of_memory(f->size + size, error) : DSMOE_OK;
}

static dsmoe_status open_follower(follower *f, dsmoe_error *error)
{
    if (f->n_threads < 1 || f->n_threads > THREADS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be 1 to %d, not %d",
                           THREADS_MAX, f->n_threads);
    STATUS_TRY(division_open(&f->division, error));
    f->division.weights = weights_create(&f->division.terms.config);
    return f->division.weights ? DSMOE_OK : out_of_memory(0, error);
}

static void close_follower(follower *f)
{
    dsmoe_model_free(f->model);
    memory_release(f->workspace.memory, f->workspace.size);
    memory_release(f->memory, f->size);
    free(f->stores);
    weights_free(f->division.weights);
    division_close(&f->division);
}

/* ---- receiving ----------------------------------------------------------------------------------- */

typedef struct octet_job {
    const follower *follower;
    matrix rows;
    int64_t n_in, n_octets;
    void *octets;
} octet_job;

enum { TASK_OCTETS = 16 };

static void octet_task(void *context, int64_t task, int thread)
{
    const octet_job *j = context;
    int64_t first = task * TASK_OCTETS;
    (void)thread;
    gemm_blocks_interleave(j->follower->kernels, j->rows, j->n_in, first,
                           moe_min(TASK_OCTETS, j->n_octets - first), j->octets);
}

/* Makes octets of a matrix that has arrived completely, at their final place. */
static void make_octets(const follower *f, const cargo *c)
{
    octet_job job = {
        .follower = f,
        .rows = {.data = f->arrived, .stride = c->matrix->stride, .type = c->matrix->type},
        .n_in = c->n_in,
        .n_octets = c->n_rows / BLOCK_OCTET,
        .octets = (void *)c->matrix->data};
    threads_for(f->n_threads, moe_parts(job.n_octets, TASK_OCTETS), octet_task, &job);
    size_t done = (size_t)(job.n_octets * BLOCK_OCTET * c->matrix->stride);
    memcpy((unsigned char *)job.octets + done, f->arrived + done, cargo_size(c) - done);
}

/* Receives a matrix. If `to` is NULL, another rank receives it, and this one only takes part in the
 * exchange. */
static dsmoe_status receive(const follower *f, unsigned char *to, size_t size, dsmoe_error *error)
{
    const division *d = &f->division;
    size_t n_ranks = (size_t)d->peers->size;
    memset(d->send, 0, n_ranks * sizeof *d->send);
    memset(d->receive, 0, n_ranks * sizeof *d->receive);
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < DIVISION_PIECE ? size - at : DIVISION_PIECE;
        if (to) d->receive[0] = (dsmoe_bytes){to + at, n};
        STATUS_TRY(peers_exchange(d->peers, d->send, d->receive, error));
    }
    return DSMOE_OK;
}

static dsmoe_status agree(const follower *f, dsmoe_error *error)
{
    const dsmoe_follow_options *o = f->options;
    dsmoe_status mine = DSMOE_OK;
    if (o->stop && o->stop(o->context))
        mine = status_fail(error, DSMOE_ERROR_STOPPED, "it was told to stop");
    return peers_agree(f->division.peers, mine, error);
}

static dsmoe_status receive_visit(void *context, const cargo *c, dsmoe_error *error)
{
    follower *f = context;
    bool octets = has_octets(f, c);
    unsigned char *to = octets ? f->arrived : (unsigned char *)c->matrix->data;
    if (c->holder == 0) return DSMOE_OK;
    STATUS_TRY(receive(f, is_held(f, c) ? to : NULL, cargo_size(c), error));
    if (is_held(f, c) && octets) make_octets(f, c);
    return division_is_due(&f->division, cargo_size(c)) ? agree(f, error) : DSMOE_OK;
}

/* ---- all steps ----------------------------------------------------------------------------------- */

static dsmoe_status get_ready(follower *f, dsmoe_error *error)
{
    STATUS_TRY(reserve_experts(f, error));
    return make_model(f, error);
}

static dsmoe_status follow(follower *f, dsmoe_error *error)
{
    division *d = &f->division;
    STATUS_TRY(peers_agree(d->peers, open_follower(f, error), error));
    STATUS_TRY(division_share_types(d, error));
    STATUS_TRY(peers_agree(d->peers, get_ready(f, error), error));
    division_claim claim = {
        .experts = f->size, .workspace = f->workspace.size, .available = memory_available()};
    STATUS_TRY(division_share_claims(d, claim, error));
    STATUS_TRY(division_each(d, receive_visit, f, error));
    STATUS_TRY(agree(f, error));
    expert_server server = {.model = f->model,
                            .peers = d->peers,
                            .workspace = f->workspace,
                            .stop = f->options->stop,
                            .context = f->options->context};
    return serve_experts(&server, error);
}

dsmoe_status dsmoe_model_follow(const dsmoe_follow_options *options, dsmoe_error *error)
{
    if (!options || peers_rank(options->peers) == 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no options, or this is rank 0");
    follower f = {.division = {.peers = options->peers},
                  .options = options,
                  .n_threads = options->n_threads,
                  .kernels = kernels_get()};
    if (f.n_threads == 0) f.n_threads = (int)moe_min(THREADS_MAX, threads_available());
    dsmoe_error own, *why = error ? error : &own;
    division_terms *terms = &f.division.terms;
    STATUS_TRY(greet_ranks(options->peers, GREET_TO_DIVIDE, why));
    STATUS_TRY(peers_broadcast(options->peers, 0, terms, sizeof *terms, why));
    if (terms->failure.status != DSMOE_OK) {
        *why = terms->failure;
        return why->status;
    }
    dsmoe_status status = follow(&f, why);
    close_follower(&f);
    return status;
}

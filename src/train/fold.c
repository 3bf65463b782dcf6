/* fold.c - adds the gradients of units to the gradient of the step. */
#include "train/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "train/trainer.h"
#include "train/tuning.h"
#include "train/units.h"

enum { STRETCH = 16 << 10 }; /* numbers of a task: few enough to stay in the cache for all units */

/* ---- memory ------------------------------------------------------------------------------------ */

/* With several ranks, one section is sent while the next one is computed. */
static int64_t n_turns(const dsmoe_trainer *t) { return t->options.peers ? 2 : 1; }

static dsmoe_status make_set(const dsmoe_trainer *t, gradient_set *set)
{
    size_t n_layers = (size_t)t->config.num_hidden_layers;
    size_t n_experts = (size_t)(t->n_moe_layers * t->config.n_routed_experts) + 1;
    set->slots = weights_create(&t->config);
    set->moe = calloc(n_layers, sizeof *set->moe);
    set->experts = calloc(n_experts, sizeof *set->experts);
    set->low = calloc(t->n_tensors + 1, sizeof *set->low);
    return set->slots && set->moe && set->experts && set->low ? DSMOE_OK : DSMOE_ERROR_MEMORY;
}

dsmoe_status fold_make(dsmoe_trainer *t, dsmoe_error *error)
{
    t->fold.under_way = -1;
    if (make_set(t, &t->fold.direct) == DSMOE_OK && make_set(t, &t->fold.apart) == DSMOE_OK)
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to train this model");
}

static int64_t n_others(const dsmoe_trainer *t) { return n_turns(t) * t->shares.n_most; }

static int64_t n_partials(const dsmoe_trainer *t)
{
    return (peers_size(t->options.peers) - 1) * t->shares.n_partial;
}

size_t fold_size(const dsmoe_trainer *t)
{
    return (size_t)(t->shares.sections[0].n + n_others(t) + n_partials(t)) * sizeof(float);
}

/* The unit's gradient of a section, where backward writes it. */
static float *unit_gradient(const dsmoe_trainer *t, int64_t index)
{
    const fold *f = &t->fold;
    return index == 0 ? f->first : f->others + index % n_turns(t) * t->shares.n_most;
}

/* ---- places of gradients ------------------------------------------------------------------------- */

typedef struct slot_walk {
    const dsmoe_trainer *trainer;
    bool direct;
    size_t next;
} slot_walk;

static float *slot_of(const void *context, const parameter *p)
{
    const slot_walk *walk = context;
    const dsmoe_trainer *t = walk->trainer;
    if (p->begin < 0) return NULL;
    chunk c = shares_chunk(t, p->first_chunk);
    bool is_whole = p->expert >= 0 && trainer_divides_experts(t); /* its owner folds it alone */
    if (walk->direct || is_whole) return c.own < 0 ? NULL : t->gradients + c.own;
    return unit_gradient(t, p->section) + (p->begin - t->shares.sections[p->section].begin);
}

static dsmoe_status slot_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    slot_walk *walk = context;
    const parameter *p = trainer_whole(walk->trainer, walk->next++);
    float *at = p ? slot_of(walk, p) : NULL;
    if (spec->n_dims == 2)
        *spec->slot.matrix = matrix_f32(at, spec->shape[1]);
    else
        *spec->slot.vector = at;
    return DSMOE_OK;
}

static dsmoe_expert_weights pointers(const moe_expert *e)
{
    return (dsmoe_expert_weights){(float *)e->gate_proj.data, (float *)e->up_proj.data,
                                  (float *)e->down_proj.data};
}

static void fill_set(const dsmoe_trainer *t, gradient_set *set, bool direct)
{
    const dsmoe_config *c = &t->config;
    slot_walk walk = {.trainer = t, .direct = direct};
    weights_each(c, set->slots, slot_visit, &walk, NULL);
    tuning_place_gradients(t, set->low, slot_of, &walk);
    if (c->tie_word_embeddings) set->slots->lm_head = set->slots->embed_tokens;
    dsmoe_expert_weights *experts = set->experts;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const moe_weights *of = &set->slots->layers[i].moe;
        if (!dsmoe_config_layer_is_moe(c, i)) continue;
        for (int64_t e = 0; e < c->n_routed_experts; e++) experts[e] = pointers(&of->experts[e]);
        set->moe[i] = (dsmoe_layer_weights){.gate = (float *)of->gate.data,
                                            .experts = experts,
                                            .shared_experts = pointers(&of->shared_experts)};
        experts += c->n_routed_experts;
    }
}

dsmoe_status fold_allocate(dsmoe_trainer *t, dsmoe_error *error)
{
    fold *f = &t->fold;
    int n_ranks = peers_size(t->options.peers);
    f->first = memory_alloc((size_t)t->shares.sections[0].n * sizeof *f->first);
    f->others = memory_alloc((size_t)n_others(t) * sizeof *f->others);
    if (n_ranks > 1) f->partials = memory_alloc((size_t)n_partials(t) * sizeof *f->partials);
    f->lists = calloc(2 * (size_t)n_ranks, sizeof *f->lists);
    if (!f->first || !f->others || (n_ranks > 1 && !f->partials) || !f->lists)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "not enough memory for the gradient of a batch");
    if (n_ranks == 1) fill_set(t, &f->direct, true);
    fill_set(t, &f->apart, false);
    return DSMOE_OK;
}

static void free_set(gradient_set *set)
{
    weights_free(set->slots);
    free(set->moe);
    free(set->experts);
    free(set->low);
}

void fold_free(fold *f)
{
    free_set(&f->direct);
    free_set(&f->apart);
    free(f->first);
    free(f->others);
    free(f->partials);
    free(f->lists);
}

/* ---- adding up ----------------------------------------------------------------------------------- */

typedef struct add_job {
    const dsmoe_trainer *trainer;
    float *to;
    int64_t n;
    const float *own; /* this rank's part of its unit's gradient */
} add_job;

static const float *partial_of(const add_job *j, int rank)
{
    int own = peers_rank(j->trainer->options.peers);
    if (rank == own) return j->own;
    return j->trainer->fold.partials +
           (rank < own ? rank : rank - 1) * j->trainer->shares.n_partial;
}

static void add_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const add_job *j = context;
    const dsmoe_trainer *t = j->trainer;
    int64_t first = task * STRETCH, n = moe_min(STRETCH, j->n - first);
    bool is_new = t->n_batches == 0;
    for (int r = 0; r < peers_size(t->options.peers); r++) {
        if (!units_report(t, r)->is_there) continue;
        const float *from = partial_of(j, r) + first;
        if (is_new)
            memcpy(j->to + first, from, (size_t)n * sizeof *from);
        else
            t->kernels->axpy(n, 1.0f, from, j->to + first);
        is_new = false;
    }
}

/* Adds all ranks' gradients of this rank's part of a section, once they are here. */
static void add_up(dsmoe_trainer *t, int64_t index)
{
    const section *s = &t->shares.sections[index];
    int rank = peers_rank(t->options.peers);
    add_job job = {.trainer = t,
                   .to = t->gradients + s->own,
                   .n = s->cuts[rank + 1] - s->cuts[rank],
                   .own = unit_gradient(t, index) + s->cuts[rank]};
    threads_for(t->options.n_threads, moe_parts(job.n, STRETCH), add_task, &job);
}

/* ---- exchange -------------------------------------------------------------------------------------- */

static dsmoe_status begin_exchange(dsmoe_trainer *t, int64_t index, dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    const section *s = &t->shares.sections[index];
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    bool is_there = units_report(t, p->rank)->is_there;
    const add_job places = {.trainer = t};
    for (int r = 0; r < p->size; r++) {
        send[r] = receive[r] = (dsmoe_bytes){0};
        if (r == p->rank) continue;
        if (is_there)
            send[r] = (dsmoe_bytes){unit_gradient(t, index) + s->cuts[r], section_part(s, r)};
        if (units_report(t, r)->is_there)
            receive[r] = (dsmoe_bytes){(float *)partial_of(&places, r), section_part(s, p->rank)};
    }
    t->fold.under_way = index;
    return peers_exchange_begin(p, send, receive, error);
}

static dsmoe_status end_exchange(dsmoe_trainer *t, dsmoe_error *error)
{
    int64_t index = t->fold.under_way;
    if (index < 0) return DSMOE_OK;
    t->fold.under_way = -1;
    STATUS_TRY(peers_exchange_end(t->options.peers, error));
    add_up(t, index);
    return DSMOE_OK;
}

void fold_begin(dsmoe_trainer *t)
{
    fold *f = &t->fold;
    f->into = t->n_batches == 0 && !t->options.peers ? &f->direct : &f->apart;
    t->low.gradients = f->into->low;
}

/* Adding up takes time on a single machine too. */
static void count_time(dsmoe_trainer *t, double start)
{
    timed_peers_take(&t->timed); /* these seconds are part of the time below */
    *(t->options.peers ? &t->times.sending : &t->times.rest) += clock_seconds() - start;
}

dsmoe_status fold_section(dsmoe_trainer *t, int64_t index, dsmoe_error *error)
{
    if (t->fold.into == &t->fold.direct) return DSMOE_OK;
    double start = trainer_start_lap(t);
    dsmoe_status status = end_exchange(t, error);
    if (status == DSMOE_OK && t->options.peers) status = begin_exchange(t, index, error);
    if (status == DSMOE_OK && trainer_divides_experts(t)) /* their rows are sent next */
        status = end_exchange(t, error);
    if (!t->options.peers) add_up(t, index);
    count_time(t, start);
    return status;
}

dsmoe_status fold_end(dsmoe_trainer *t, dsmoe_error *error)
{
    double start = trainer_start_lap(t);
    dsmoe_status status = end_exchange(t, error);
    count_time(t, start);
    return status;
}

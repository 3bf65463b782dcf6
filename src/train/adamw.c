/* adamw.c - one optimizer step: the norm of the whole gradient, clipping, AdamW.
 *
 * Norms of chunks are added in the order of the chunks, whichever thread or rank computed them, so the sum
 * depends neither on threads nor on ranks. Weights, gradients and both moments are cut into the same
 * chunks; the owner of a chunk reads and writes each of them once. */
#include "train/adamw.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"

typedef struct adamw_space {
    double *norms;      /* [n_chunks] norms of this rank's chunks */
    double *gathered;   /* the norms of all ranks without gaps, rank after rank */
    dsmoe_bytes *lists; /* [n_ranks] */
} adamw_space;

typedef struct adamw_job {
    dsmoe_trainer *trainer;
    adamw_space space;
    adamw_step step;
    float decayed; /* `keep` for parameters that decay */
} adamw_job;

static adamw_space space_place(arena *a, const dsmoe_trainer *t)
{
    return (adamw_space){
        .norms = arena_take(a, t->shares.n_chunks, sizeof(double)),
        .gathered = arena_take(a, t->shares.n_chunks, sizeof(double)),
        .lists = arena_take(a, peers_size(t->options.peers), sizeof(dsmoe_bytes)),
    };
}

size_t adamw_size(const dsmoe_trainer *t)
{
    arena measure = arena_over(NULL);
    space_place(&measure, t);
    return arena_size(&measure);
}

/* ---- the norm ---------------------------------------------------------------------------------- */

static void norm_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const adamw_job *j = context;
    const dsmoe_trainer *t = j->trainer;
    chunk c = shares_chunk(t, task);
    if (c.own >= 0) j->space.norms[task] = t->kernels->sum_squares(c.n, t->gradients + c.own);
}

/* Gives every rank all norms, in `norms`. */
static dsmoe_status share_norms(const adamw_job *j, dsmoe_error *error)
{
    dsmoe_trainer *t = j->trainer;
    const dsmoe_peers *p = t->options.peers;
    dsmoe_bytes *lists = j->space.lists;
    if (!p) return DSMOE_OK;
    double start = clock_seconds();
    for (int r = 0; r < p->size; r++) lists[r].size = 0;
    for (int64_t i = 0; i < t->shares.n_chunks; i++)
        lists[shares_chunk(t, i).owner].size += sizeof(double);
    char *at = (char *)j->space.gathered;
    for (int r = 0; r < p->size; at += lists[r++].size) lists[r].bytes = at;
    double *own = lists[p->rank].bytes;
    for (int64_t i = 0; i < t->shares.n_chunks; i++)
        if (shares_chunk(t, i).own >= 0) *own++ = j->space.norms[i];
    STATUS_TRY(peers_gather(p, lists, error));
    for (int64_t i = 0; i < t->shares.n_chunks; i++) {
        dsmoe_bytes *of = &lists[shares_chunk(t, i).owner];
        memcpy(&j->space.norms[i], of->bytes, sizeof(double));
        of->bytes = (char *)of->bytes + sizeof(double);
    }
    double waited = clock_seconds() - start;
    timed_peers_take(&t->timed); /* these seconds are part of `waited` */
    t->times.waiting += waited;
    t->times.optimizer -= waited;
    return DSMOE_OK;
}

static dsmoe_status square_norm(adamw_job *j, double *sum, dsmoe_error *error)
{
    const dsmoe_trainer *t = j->trainer;
    threads_for(t->options.n_threads, t->shares.n_chunks, norm_task, j);
    STATUS_TRY(share_norms(j, error));
    *sum = 0.0;
    for (int64_t i = 0; i < t->shares.n_chunks; i++) *sum += j->space.norms[i];
    return DSMOE_OK;
}

/* ---- the step ---------------------------------------------------------------------------------- */

static void step_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const adamw_job *j = context;
    const dsmoe_trainer *t = j->trainer;
    chunk c = shares_chunk(t, task);
    if (c.own < 0) return;
    adamw_step step = j->step;
    step.keep = c.decays ? j->decayed : 1.0f;
    t->kernels->adamw(c.n, &step, t->gradients + c.own, t->weights + c.begin,
                      t->first_moment + c.own, t->second_moment + c.own);
}

static void prepare_step(adamw_job *j, double lr, double norm)
{
    const dsmoe_trainer_options *o = &j->trainer->options;
    double scale = 1.0 / (double)j->trainer->n_batches;
    double updates = (double)++j->trainer->n_updates;
    if (o->clip_norm > 0.0 && norm > o->clip_norm) scale *= o->clip_norm / (norm + 1e-6);
    j->step = (adamw_step){.scale = (float)scale,
                           .beta1 = (float)o->beta1,
                           .beta2 = (float)o->beta2,
                           .new1 = (float)(1.0 - o->beta1),
                           .new2 = (float)(1.0 - o->beta2),
                           .rate = (float)(lr / (1.0 - pow(o->beta1, updates))),
                           .root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, updates))),
                           .eps = (float)o->eps};
    j->decayed = (float)(1.0 - lr * o->weight_decay);
}

dsmoe_status adamw_update(dsmoe_trainer *t, double lr, void *workspace, dsmoe_update *update,
                          dsmoe_error *error)
{
    arena a = arena_over(workspace);
    adamw_job job = {.trainer = t, .space = space_place(&a, t)};
    double sum, start = trainer_start_lap(t);
    STATUS_TRY(square_norm(&job, &sum, error));
    double norm = sqrt(sum) / (double)t->n_batches;
    *update = (dsmoe_update){norm, !isfinite(norm)};
    if (update->skipped) {
        t->times.optimizer += clock_seconds() - start;
        return DSMOE_OK;
    }
    prepare_step(&job, lr, norm);
    threads_for(t->options.n_threads, t->shares.n_chunks, step_task, &job);
    t->times.optimizer += clock_seconds() - start;
    return DSMOE_OK;
}

/* adamw.c - one optimizer step: the norm of the whole gradient, clipping, AdamW.
 *
 * All parameters lie in one row of numbers, cut into chunks of a fixed size: norms of chunks are
 * added in order, so that the sum does not depend on threads. A chunk is the same for weight,
 * gradient and both moments, each of which is read and written once. */
#include "train/adamw.h"

#include <math.h>

#include "base/threads.h"

enum { CHUNK = 64 << 10 };

typedef struct adamw_job {
    dsmoe_trainer *trainer;
    double *norms; /* of chunks */
    adamw_step step;
    float decayed; /* `keep` of parameters that decay */
} adamw_job;

static int64_t chunks(const dsmoe_trainer *t) { return moe_parts(t->n_numbers, CHUNK); }

size_t adamw_size(const dsmoe_trainer *t) { return (size_t)chunks(t) * sizeof(double); }

static void norm_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const adamw_job *j = context;
    int64_t first = task * CHUNK, n = moe_min(CHUNK, j->trainer->n_numbers - first);
    j->norms[task] = j->trainer->kernels->sum_squares(n, j->trainer->gradients + first);
}

/* The last parameter that begins at or before a number. */
static const parameter *find(const dsmoe_trainer *t, int64_t number)
{
    size_t low = 0, high = t->n_parameters;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(t->parameters[middle].begin <= number ? &low : &high) = middle;
    }
    return &t->parameters[low];
}

static void step_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const adamw_job *j = context;
    dsmoe_trainer *t = j->trainer;
    int64_t first = task * CHUNK, end = moe_min(t->n_numbers, first + CHUNK);
    const parameter *p = find(t, first), *last = t->parameters + t->n_parameters - 1;
    while (first < end) {
        int64_t next = p < last ? moe_min(end, p[1].begin) : end;
        adamw_step step = j->step;
        step.keep = p->decays ? j->decayed : 1.0f;
        t->kernels->adamw(next - first, &step, t->gradients + first, t->weights + first,
                          t->first_moment + first, t->second_moment + first);
        first = next;
        p++;
    }
}

dsmoe_update adamw_update(dsmoe_trainer *t, double lr, void *workspace)
{
    const dsmoe_trainer_options *o = &t->options;
    adamw_job job = {.trainer = t, .norms = workspace};
    threads_for(o->n_threads, chunks(t), norm_task, &job);
    double sum = 0.0;
    for (int64_t i = 0; i < chunks(t); i++) sum += job.norms[i];
    double norm = sqrt(sum) / (double)t->n_batches, scale = 1.0 / (double)t->n_batches;
    if (!isfinite(norm)) return (dsmoe_update){norm, true};
    if (o->clip_norm > 0.0 && norm > o->clip_norm) scale *= o->clip_norm / (norm + 1e-6);
    double updates = (double)++t->n_updates;
    job.step = (adamw_step){.scale = (float)scale,
                            .beta1 = (float)o->beta1,
                            .beta2 = (float)o->beta2,
                            .new1 = (float)(1.0 - o->beta1),
                            .new2 = (float)(1.0 - o->beta2),
                            .rate = (float)(lr / (1.0 - pow(o->beta1, updates))),
                            .root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, updates))),
                            .eps = (float)o->eps};
    job.decayed = (float)(1.0 - lr * o->weight_decay);
    threads_for(o->n_threads, chunks(t), step_task, &job);
    return (dsmoe_update){norm, false};
}

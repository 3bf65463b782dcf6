/* halves.c - copies pieces of memory into a store and back, in tasks of some numbers each. */
#include "train/halves.h"

#include <string.h>

#include "base/threads.h"

enum {
    PART = 16 << 10, /* numbers of a task */
    NEAR = 512,      /* numbers that are rounded at a time */
};

typedef struct halves_job {
    const kernels *kernels;
    const kept_piece *pieces;
    char *store;
    bool is_back;
} halves_job;

static size_t stored_size(const kept_piece *p) { return p->is_rounded ? p->size / 2 : p->size; }

static int64_t n_tasks(const kept_piece *p)
{
    int64_t n = (int64_t)(p->size / sizeof(float));
    return (n + PART - 1) / PART;
}

size_t halves_size(const kept_piece pieces[KEPT_PIECES])
{
    size_t sum = 0;
    for (int i = 0; i < KEPT_PIECES; i++) sum += stored_size(&pieces[i]);
    return sum;
}

/* Infinity would spoil the sums of all tokens. NaN stays NaN. */
static void clamp(int64_t n, const float *from, float *to)
{
    const float most = 65504.0f;
    for (int64_t i = 0; i < n; i++) {
        float x = from[i] > most ? most : from[i];
        to[i] = x < -most ? -most : x;
    }
}

/* Rounds n numbers into the store; without a store, in place. */
static void keep_rounded(const kernels *kn, int64_t n, float *numbers, uint16_t *store)
{
    for (int64_t i = 0; i < n; i += NEAR) {
        int64_t here = n - i < NEAR ? n - i : NEAR;
        float clamped[NEAR];
        uint16_t halves[NEAR], *to = store ? store + i : halves;
        clamp(here, numbers + i, clamped);
        kn->caches[DSMOE_F16].narrow(here, clamped, to);
        if (!store) kn->dtypes[DSMOE_F16].widen(here, halves, numbers + i);
    }
}

static void piece_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const halves_job *j = context;
    const kept_piece *p = j->pieces;
    char *store = j->store;
    for (; task >= n_tasks(p); p++) {
        task -= n_tasks(p);
        if (store) store += stored_size(p);
    }
    int64_t first = task * PART, left = (int64_t)(p->size / sizeof(float)) - first;
    int64_t n = left < PART ? left : PART;
    float *numbers = (float *)p->at + first;
    uint16_t *halves = store ? (uint16_t *)store + first : NULL;
    float *as_they_are = store ? (float *)store + first : NULL;
    if (p->is_rounded && j->is_back)
        j->kernels->dtypes[DSMOE_F16].widen(n, halves, numbers);
    else if (p->is_rounded)
        keep_rounded(j->kernels, n, numbers, halves);
    else if (store)
        memcpy(j->is_back ? numbers : as_they_are, j->is_back ? as_they_are : numbers,
               (size_t)n * sizeof *numbers);
}

static void run(halves_job job, int n_threads)
{
    int64_t count = 0;
    for (int i = 0; i < KEPT_PIECES; i++) count += n_tasks(&job.pieces[i]);
    threads_for(n_threads, count, piece_task, &job);
}

void halves_keep(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads)
{
    run((halves_job){kn, pieces, store, false}, n_threads);
}

void halves_take(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads)
{
    run((halves_job){kn, pieces, store, true}, n_threads);
}

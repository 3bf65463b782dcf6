/* machine.c - what the machine can do at best: the two limits every benchmark is measured against. */
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"

enum {
    ROUNDS = 3,           /* the best of these counts: other users of the machine only slow it down */
    FMA_ROUNDS = 1000000, /* some milliseconds */
    READ_FLOATS = 1 << 26 /* 256 MiB, more than caches hold */
};

typedef struct probe {
    const kernels *kernels;
    int n_threads;
    double *operations; /* by thread */
    float *sink;        /* by thread */
    const float *memory;
} probe;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fma_task(void *context, int64_t task, int thread)
{
    (void)thread;
    probe *p = context;
    p->operations[task] = p->kernels->probe_fma(FMA_ROUNDS, &p->sink[task]);
}

static void read_task(void *context, int64_t task, int thread)
{
    (void)thread;
    probe *p = context;
    int64_t n = READ_FLOATS / p->n_threads / 64 * 64;
    p->sink[task] = p->kernels->probe_read(n, p->memory + task * n);
    p->operations[task] = (double)n * sizeof(float);
}

/* Billions of operations (or bytes) a second over all threads, the best of some rounds. */
static double best_rate(probe *p, threads_task_fn *task)
{
    double best = 0.0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = seconds(), total = 0.0;
        threads_for(p->n_threads, p->n_threads, task, p);
        double rate = 1e-9 / (seconds() - start);
        for (int i = 0; i < p->n_threads; i++) total += p->operations[i];
        if (rate * total > best) best = rate * total;
    }
    return best;
}

dsmoe_status dsmoe_machine_measure(int n_threads, dsmoe_machine *machine, dsmoe_error *error)
{
    if (n_threads < 1 || n_threads > 4096 || !machine)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "cannot measure on %d threads", n_threads);
    float *memory = memory_alloc((size_t)READ_FLOATS * sizeof *memory);
    float *sink = calloc((size_t)n_threads, sizeof *sink);
    double *operations = calloc((size_t)n_threads, sizeof *operations);
    if (memory && sink && operations) {
        probe p = {kernels_get(), n_threads, operations, sink, memory};
        machine->fma_gflops = best_rate(&p, fma_task);
        machine->read_gbs = best_rate(&p, read_task);
    }
    bool measured = memory && sink && operations;
    free(operations);
    free(sink);
    free(memory);
    return measured ? DSMOE_OK
                    : status_fail(error, DSMOE_ERROR_MEMORY, "no memory to measure the machine with");
}

int dsmoe_machine_threads(void) { return threads_available(); }

/* machine.c - measures the two limits of the machine that benchmarks are compared with: arithmetic and
 * reading. */
#include <stdlib.h>

#include "base/status.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

enum {
    FMA_ROUNDS = 100000,  /* a fraction of a millisecond */
    READ_PIECE = 1 << 18, /* floats: 1 MiB */
    MIN_PIECES = 64,
    MAX_THREADS = 4096
};

typedef struct probe {
    const kernels *kernels;
    int n_threads;
    double deadline;
    double *done; /* [n_threads] operations, or bytes */
    float *sink;  /* [n_threads] keeps the compiler from removing the work */
    const float *memory;
    int64_t n_pieces;
} probe;

static void fma_task(void *context, int64_t task, int thread)
{
    (void)thread;
    probe *p = context;
    while (clock_seconds() < p->deadline)
        p->done[task] += p->kernels->probe_fma(FMA_ROUNDS, &p->sink[task]);
}

/* Each thread reads its own share of the memory again and again. */
static void read_task(void *context, int64_t task, int thread)
{
    (void)thread;
    probe *p = context;
    int64_t pieces = p->n_pieces / p->n_threads, piece = 0;
    for (; clock_seconds() < p->deadline; piece = (piece + 1) % pieces) {
        const float *at = p->memory + (task * pieces + piece) * READ_PIECE;
        p->sink[task] += p->kernels->probe_read(READ_PIECE, at);
        p->done[task] += READ_PIECE * sizeof(float);
    }
}

/* Billions of operations or bytes per second, over all threads. */
static double rate(probe *p, double seconds, threads_task_fn *task)
{
    double start = clock_seconds(), total = 0.0;
    for (int i = 0; i < p->n_threads; i++) p->done[i] = 0.0;
    p->deadline = start + seconds;
    threads_for(p->n_threads, p->n_threads, task, p);
    double elapsed = clock_seconds() - start;
    for (int i = 0; i < p->n_threads; i++) total += p->done[i];
    return total / elapsed * 1e-9;
}

dsmoe_status dsmoe_machine_measure(int n_threads, double seconds, const void *memory, size_t size,
                                   dsmoe_machine *machine, dsmoe_error *error)
{
    int64_t n_pieces = (int64_t)(size / sizeof(float) / READ_PIECE);
    if (n_threads < 1 || n_threads > MAX_THREADS || !machine || !(seconds > 0.0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "cannot measure on %d threads for %g s",
                           n_threads, seconds);
    if (!memory || n_pieces < MIN_PIECES || n_pieces < n_threads)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%zu bytes are too few to measure reading",
                           memory ? size : 0);
    float *sink = calloc((size_t)n_threads, sizeof *sink);
    double *done = calloc((size_t)n_threads, sizeof *done);
    bool ready = sink && done;
    if (ready) {
        probe p = {kernels_get(), n_threads, 0.0, done, sink, memory, n_pieces};
        machine->fma_gflops = rate(&p, seconds, fma_task);
        machine->read_gbs = rate(&p, seconds, read_task);
    }
    free(done);
    free(sink);
    if (!ready)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to measure the machine");
    return DSMOE_OK;
}

int dsmoe_machine_threads(void) { return threads_available(); }

uint64_t dsmoe_machine_memory(void) { return memory_available(); }

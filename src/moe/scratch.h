/* scratch.h - what each thread has to itself in products. */
#ifndef DSMOE_MOE_SCRATCH_H
#define DSMOE_MOE_SCRATCH_H

#include "base/arena.h"
#include "kernels/gemm.h"
#include "moe/cut.h"

typedef struct adapter_ranges adapter_ranges; /* low_rank.h */

/* One thread's scratch. */
typedef struct thread_scratch {
    gemm gemm;
    float *gate, *up; /* [GEMM_ROWS, CUT_WIDEST] pre-activations that are not kept */
    char *ints;       /* the same for all threads: room for x in integers, see ints.h */
    size_t ints_size;
    const adapter_ranges *adapters; /* that products meet, of all threads the same; NULL: none */
} thread_scratch;

/* `longest` bounds the length of a row of any operand; ints_size is what x in integers may take. */
thread_scratch *scratch_place(arena *a, const kernels *kernels, int64_t longest, size_t ints_size,
                              int n_threads);

/* Products of these threads keep a row's bits whichever rows come with it: see gemm.same_order. */
static inline void scratch_same_bits(thread_scratch *threads, int n_threads, bool same_bits)
{
    for (int i = 0; i < n_threads; i++) threads[i].gemm.same_order = same_bits;
}

#endif

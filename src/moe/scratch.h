/* scratch.h - memory and settings that each thread has for products. */
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
    char *ints;       /* for x in integers, see ints.h; the same memory for all threads */
    size_t ints_size;
    const adapter_ranges *adapters; /* that apply to products, the same for all threads; or NULL */
} thread_scratch;

/* No row of an operand may be longer than `longest`. ints_size is the memory for x in integers. */
thread_scratch *scratch_place(arena *a, const kernels *kernels, int64_t longest, size_t ints_size,
                              int n_threads);

/* Sets gemm.same_order for these threads: with it, a row's bits do not depend on the other rows. */
static inline void scratch_same_bits(thread_scratch *threads, int n_threads, bool same_bits)
{
    for (int i = 0; i < n_threads; i++) threads[i].gemm.same_order = same_bits;
}

#endif

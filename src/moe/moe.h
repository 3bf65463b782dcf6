/* moe.h - the layer as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_MOE_MOE_H
#define DSMOE_MOE_MOE_H

#include "base/arena.h"
#include "base/status.h"
#include "kernels/gemm.h"

struct dsmoe_layer {
    dsmoe_layer_config config;
    const kernels *kernels;
    dsmoe_layer_weights weights; /* `experts` is the layer's own copy of the table */
};

/* Width of the fused shared experts; 0 if there are none. */
static inline int64_t moe_shared_width(const dsmoe_layer_config *c)
{
    return c->n_shared_experts * c->moe_intermediate_size;
}

/* The widest expert. */
static inline int64_t moe_widest(const dsmoe_layer_config *c)
{
    return c->n_shared_experts > 1 ? moe_shared_width(c) : c->moe_intermediate_size;
}

/* One thread's scratch. */
typedef struct thread_scratch {
    gemm gemm;
    float *gate, *up; /* [GEMM_ROWS, MOE_PART] pre-activations that nobody keeps */
} thread_scratch;

enum { MOE_PART = 384 }; /* output columns of a forward product that one task computes */

thread_scratch *scratch_place(arena *a, const dsmoe_layer *layer, int n_threads);

static inline int64_t moe_parts(int64_t n, int64_t part) { return (n + part - 1) / part; }
static inline int64_t moe_min(int64_t a, int64_t b) { return a < b ? a : b; }

#endif

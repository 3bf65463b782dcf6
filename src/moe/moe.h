/* moe.h - the layer as other files see it: its weights, creating it, running it. Training is in train.h. */
#ifndef DSMOE_MOE_MOE_H
#define DSMOE_MOE_MOE_H

#include "base/status.h"
#include "kernels/kernels.h"

/* Like dsmoe_expert_weights and dsmoe_layer_weights, but the matrices may have any type. */
typedef struct moe_expert {
    matrix gate_proj, up_proj, down_proj;
} moe_expert;

typedef struct moe_weights {
    matrix gate;
    float *e_score_correction_bias; /* for the topk_method noaux_tc; otherwise NULL */
    moe_expert *experts;
    moe_expert shared_experts;
} moe_weights;

typedef struct low_rank_training low_rank_training; /* low_rank_backward.h */

/* Experts first … end-1. */
typedef struct expert_range {
    int64_t first, end;
} expert_range;

struct dsmoe_layer {
    dsmoe_layer_config config;
    const kernels *kernels;
    moe_weights weights; /* `experts` is the layer's own copy of the table */
    unsigned x_forms;    /* the integer forms of x that its experts need: see ints.h */
    int64_t n_masked;    /* how many of its best experts each token may not use; 0 except in a
                            probe, which sets it before the layer is used */
    bool masks_first;    /* masked experts get no share of the softmax either */
    expert_range held;   /* routed experts whose weights are here: all, unless ranks share them */
    const dsmoe_peers *peers;          /* the ranks that share the experts; NULL: no others */
    int64_t most_tokens;               /* the most tokens that any rank brings to a pass */
    int64_t low_rank_width;            /* columns of T that a pass has memory for: see low_rank.h */
    const low_rank_training *low_rank; /* what training adapts; NULL: nothing */
};

/* The values that the strings of a checked configuration name. */
dsmoe_scoring_func moe_scoring_func(const dsmoe_layer_config *c);
dsmoe_topk_method moe_topk_method(const dsmoe_layer_config *c);
/* A copy of a checked configuration that does not point to the caller's strings. */
dsmoe_layer_config moe_config_own(const dsmoe_layer_config *c);

/* dsmoe_layer_create for weights of any type, with these kernels. `config` must have been checked. */
dsmoe_status layer_create(const dsmoe_layer_config *config, const moe_weights *weights,
                          const kernels *kn, dsmoe_layer **layer, dsmoe_error *error);

/* Makes the ranks share the layer's routed experts. Each rank holds the experts of its range (see wave_held);
 * the weights of the others may be NULL. All ranks call each pass at the same time, each with its own tokens
 * or with none. In training a rank brings at most most_tokens; inference cuts longer inputs into pieces. For
 * its tokens, each rank gets exactly the bits that a layer on one machine would give.
 *
 * Gradients: those of the router and of the shared experts are written, for this rank's tokens only, whatever
 * `accumulate` says. Those of the held experts are sums over the ranks, in the order of the ranks: each
 * rank's term is computed from zero and then added, to what is there already if `accumulate`.
 *
 * If a router score on one rank is not finite, all ranks return that error. Wrong arguments are not reported
 * to the other ranks, so every rank must be called correctly. */
void layer_join(dsmoe_layer *layer, const dsmoe_peers *peers, int64_t most_tokens);

typedef struct adapter_ranges adapter_ranges; /* low_rank.h */

/* Called with the input of each product before it runs: n_rows rows of n_in numbers that `weight` will be
 * multiplied with. Called from the thread that called forward, one product after the other. */
typedef struct input_watch {
    void (*see)(void *context, matrix weight, rows x, int64_t n_rows, int64_t n_in);
    void *context;
} input_watch;

/* How a layer runs, and functions that observe it. Every field may be NULL or 0. */
typedef struct layer_manner {
    /* Called with the routing of each piece of tokens, and the number of its first token. */
    void (*routing)(void *context, int64_t first, int64_t n_tokens, const dsmoe_routing *routing);
    /* Called for each token whose scores are not finite numbers. Such a token is then no error: it gets the
     * first experts, with NaN as gate values. */
    void (*spoilt)(void *context, int64_t token);
    void *context;
    const input_watch *inputs;      /* called for the products of the experts */
    const adapter_ranges *adapters; /* by token of the call; if its t is NULL the layer sets it */
    bool same_bits;  /* a token's bits do not depend on other tokens: see gemm.same_order */
    bool is_stopped; /* makes all ranks that share the experts return DSMOE_ERROR_STOPPED */
} layer_manner;

/* dsmoe_layer_forward with a manner, which may be NULL. */
dsmoe_status layer_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, float *y,
                           const dsmoe_workspace *workspace, const layer_manner *manner,
                           dsmoe_error *error);

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

static inline int64_t moe_parts(int64_t n, int64_t part) { return (n + part - 1) / part; }
static inline int64_t moe_min(int64_t a, int64_t b) { return a < b ? a : b; }

#endif

/* moe.h - the layer as other files see it: its weights, creating it, running it. Training is in train.h. */
#ifndef DSMOE_MOE_MOE_H
#define DSMOE_MOE_MOE_H

#include "base/status.h"
#include "kernels/kernels.h"

/* dsmoe_expert_weights and dsmoe_layer_weights over matrices of any type. */
typedef struct moe_expert {
    matrix gate_proj, up_proj, down_proj;
} moe_expert;

typedef struct moe_weights {
    matrix gate;
    float *e_score_correction_bias; /* of the gate noaux_tc; otherwise NULL */
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
    unsigned x_forms;    /* that its experts want of x: see ints.h */
    int64_t n_masked;    /* experts that each token would choose first and may not use; 0 but in a
                            probe, which sets it before anyone uses the layer */
    bool masks_first;    /* those have no share in the softmax */
    expert_range held;   /* routed experts whose weights are here: all, unless ranks share them */
    const dsmoe_peers *peers; /* that share them; NULL: alone */
    int64_t most_tokens;      /* that any of them brings to a pass */
    int64_t low_rank_width;   /* of the adapters that a pass may meet: see low_rank.h; 0: none */
    const low_rank_training *low_rank; /* what training adapts; NULL: nothing */
};

/* What the words of a checked configuration mean. */
dsmoe_scoring_func moe_scoring_func(const dsmoe_layer_config *c);
dsmoe_topk_method moe_topk_method(const dsmoe_layer_config *c);
/* A checked configuration whose words need not outlive the call. */
dsmoe_layer_config moe_config_own(const dsmoe_layer_config *c);

/* dsmoe_layer_create over weights of any type, with those kernels; `config` is checked already. */
dsmoe_status layer_create(const dsmoe_layer_config *config, const moe_weights *weights,
                          const kernels *kn, dsmoe_layer **layer, dsmoe_error *error);

/* From now on the ranks share the layer's routed experts: each holds those of its range (see wave_held), and the
 * weights of all others may be NULL. All ranks call each pass at the same time, each with its own tokens, at most
 * most_tokens in training (inference takes more in pieces) or none, and get for them what the layer alone would
 * give, to the bit. Of the gradients, the router's and the shared experts' are then written for the own tokens,
 * whatever `accumulate` says; those of the held experts are the sum over the ranks in their order, each rank's
 * made from zero and then added, beginning with what is there if `accumulate`. A router score on one rank that is
 * not finite is an error of all ranks; wrong arguments are not, so all ranks must be called correctly. */
void layer_join(dsmoe_layer *layer, const dsmoe_peers *peers, int64_t most_tokens);

typedef struct adapter_ranges adapter_ranges; /* low_rank.h */

/* Sees what a weight is about to be multiplied with: n_rows rows of n_in numbers. Called from the
 * thread that called forward, one product after the other. */
typedef struct input_watch {
    void (*see)(void *context, matrix weight, rows x, int64_t n_rows, int64_t n_in);
    void *context;
} input_watch;

/* How a layer runs, and who watches it; all may be NULL. */
typedef struct layer_manner {
    /* Sees the routing of each piece of tokens, with the number of its first token. */
    void (*routing)(void *context, int64_t first, int64_t n_tokens, const dsmoe_routing *routing);
    /* Called for each token whose scores are not finite numbers: with that, such a token is not an error,
     * but gets the first experts with gate values that are not numbers. */
    void (*spoilt)(void *context, int64_t token);
    void *context;
    const input_watch *inputs;      /* of the experts */
    const adapter_ranges *adapters; /* by token of the call; without t, the layer has room */
    bool same_bits; /* a token's bits do not depend on its company: see gemm.same_order */
    bool
        is_stopped; /* this rank asks to stop: DSMOE_ERROR_STOPPED for all that share the experts */
} layer_manner;

/* dsmoe_layer_forward in that manner; NULL: not watched. */
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

/* layer.h - where the arrays of a pass lie. */
#ifndef DSMOE_MOE_LAYER_H
#define DSMOE_MOE_LAYER_H

#include "moe/balance.h"
#include "moe/combine.h"
#include "moe/dispatch.h"
#include "moe/experts.h"
#include "moe/gate.h"
#include "moe/travel.h"

/* What training keeps from forward to backward. */
typedef struct saved {
    struct saved_header {
        uint64_t state; /* SAVED_READY between forward and backward */
        layer_batch batch;
    } * header;
    dsmoe_routing routing;
    dispatch dispatch;
    row_array g, u;
    int32_t *said; /* by all ranks, of the wave: see wave.h */
} saved;

enum { SAVED_READY = 0x64736d6f, SAVED_USED = 0x75736564 };

saved saved_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* A row_array of so many numbers. */
row_array row_array_place(arena *a, int64_t routed, int64_t shared);

/* Experts with a group for each routed one and one for the shared ones. */
experts layer_experts_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* What rows of x take in integers, and later, in the same place, those that they become: the tokens of this rank,
 * and after them guests. */
size_t layer_ints_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_guests);

dsmoe_routing routing_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* Room for T of low-rank additions: of gate_proj and up_proj, and later of down_proj. */
float *layer_t_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* The longest row of any operand. */
static inline int64_t layer_longest(const dsmoe_layer_config *c)
{
    return moe_widest(c) > c->hidden_size ? moe_widest(c) : c->hidden_size;
}

/* Row numbers are 32 bits wide; beyond them no single batch is meant to go. */
bool layer_batch_fits(const dsmoe_layer *layer, int64_t n_tokens);

/* Complains about arguments that no pass can work with; `needed` is the workspace it takes. */
dsmoe_status layer_check_call(const dsmoe_layer *layer, int64_t n_tokens, const void *x,
                              const void *y, const dsmoe_workspace *workspace, size_t needed,
                              dsmoe_error *error);

/* Tokens that go through the layer at once in inference; ranks that share its experts agree on it. */
int64_t layer_piece(const dsmoe_layer *layer);

/* Workspace of inference. */
typedef struct infer_space {
    dsmoe_routing routing;
    dispatch dispatch;
    experts experts;
    travel travel;
    thread_scratch *threads;
    float *keys; /* of the gate */
    row_array h;
    float *out; /* routed rows; shared ones go straight to y */
    float *t;   /* of low-rank additions */
} infer_space;

infer_space infer_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads);

/* Workspace of training, forward and backward. */
typedef struct train_space {
    experts experts;
    travel travel;
    thread_scratch *threads;
    float *keys; /* of the gate */
    row_array h;
    float *out;               /* routed rows */
    float *weight, *d_weight; /* by row */
    float *d_topk_weight;     /* by slot */
    float *d_scores;          /* a row for each sequence, or for each token: see balance_gradient */
    float *d_logits;          /* [n_tokens, n_routed_experts] */
    double *balance;
    adapter_ranges ranges; /* of low-rank additions, if the layer has some */
} train_space;

train_space train_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads);

#endif

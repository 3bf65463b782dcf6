/* layer.h - the arrays of a pass through the layer, and where they are in memory. */
#ifndef DSMOE_MOE_LAYER_H
#define DSMOE_MOE_LAYER_H

#include "moe/balance.h"
#include "moe/combine.h"
#include "moe/dispatch.h"
#include "moe/experts.h"
#include "moe/gate.h"
#include "moe/travel.h"

/* What training keeps between forward and backward. */
typedef struct saved {
    struct saved_header {
        uint64_t state; /* SAVED_READY between forward and backward */
        layer_batch batch;
    } * header;
    dsmoe_routing routing;
    dispatch dispatch;
    row_array g, u;
    int32_t *said; /* what all ranks reported about the wave: see wave.h */
} saved;

enum { SAVED_READY = 0x64736d6f, SAVED_USED = 0x75736564 };

saved saved_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* A row_array with space for that many floats of routed and of shared rows. */
row_array row_array_place(arena *a, int64_t routed, int64_t shared);

/* Space for one group for each routed expert, and one for the shared experts. */
experts layer_experts_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* Bytes for the rows of x in integers, first of this rank's tokens and then of guests. The rows of h reuse
 * the same memory. */
size_t layer_ints_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_guests);

dsmoe_routing routing_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* Space for T of low-rank additions: first of gate_proj and up_proj together, then of down_proj. */
float *layer_t_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens);

/* The longest row of any operand. */
static inline int64_t layer_longest(const dsmoe_layer_config *c)
{
    return moe_widest(c) > c->hidden_size ? moe_widest(c) : c->hidden_size;
}

/* Whether the row numbers of a batch fit in 32 bits, which limits its size. */
bool layer_batch_fits(const dsmoe_layer *layer, int64_t n_tokens);

/* Checks the arguments that every pass has. `needed` is the size of the workspace; 0: too many tokens. */
dsmoe_status layer_check_call(const dsmoe_layer *layer, int64_t n_tokens, const void *x,
                              const void *y, const dsmoe_workspace *workspace, size_t needed,
                              dsmoe_error *error);

/* Inference sends at most this many tokens through the layer at a time. All ranks have the same number. */
int64_t layer_piece(const dsmoe_layer *layer);

/* Workspace of inference. */
typedef struct infer_space {
    dsmoe_routing routing;
    dispatch dispatch;
    experts experts;
    travel travel;
    thread_scratch *threads;
    float *keys; /* see gate_keys_place */
    row_array h;
    float *out; /* of routed rows; the shared experts write to y directly */
    float *t;   /* T of low-rank additions */
} infer_space;

infer_space infer_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads);

/* Workspace of training, forward and backward. */
typedef struct train_space {
    experts experts;
    travel travel;
    thread_scratch *threads;
    float *keys; /* see gate_keys_place */
    row_array h;
    float *out;               /* of routed rows */
    float *weight, *d_weight; /* [rows] in the order of rows */
    float *d_topk_weight;     /* [rows] in the order of slots */
    float *d_scores;          /* a row for each sequence, or for each token: see balance_gradient */
    float *d_logits;          /* [n_tokens, n_routed_experts] */
    double *balance;
    adapter_ranges ranges; /* of low-rank additions, if the layer has any */
} train_space;

train_space train_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads);

#endif

/* travel.h - the experts of a layer over the rows of one unit, wherever they are held.
 *
 * Rows whose experts another rank holds travel there and come back. A guest is such a row seen from the rank that
 * it comes to. A token's x goes once to a rank, with the place of each row's token in the order that the experts
 * want. The rank runs one group for each (expert, unit), with the rows that a machine alone would have in it, in
 * the same order: so all sums are the same, to the bit. Results return to where the unit's own would lie, and are
 * combined there. While rows travel, each rank computes what it has at home:
 *
 *   forward    x goes out                  home rows meanwhile
 *              guests: FFN
 *              output rows return          shared experts meanwhile
 *   backward   x, dy, gate values go out   home rows meanwhile
 *              guests: FFN again where g and u were not kept, then dx
 *              dx rows return              gradients of the weights, shared experts meanwhile
 *              gradients of gate values return
 *
 * once for each round of the wave (see wave.h); one round, unless the loads are far from balanced. */
#ifndef DSMOE_MOE_TRAVEL_H
#define DSMOE_MOE_TRAVEL_H

#include "moe/experts.h"
#include "moe/train.h"
#include "moe/wave.h"

/* One message out: tokens, and rows of them. */
typedef struct parcel {
    dsmoe_bytes bytes;
    float *x, *dy;  /* [tokens, hidden_size]; dy, */
    float *weight;  /* [rows] and the gate values in backward */
    int32_t *token; /* [rows] which of these tokens */
} parcel;

typedef struct travel {
    wave wave;
    /* What leaves: */
    int32_t *last_rank,
        *place;          /* [n_tokens] the rank that the token was listed for last, and where */
    int64_t *n_sent;     /* [n_ranks] */
    int32_t *sent_token; /* [n_tokens·k] those for rank 0, those for rank 1, … */
    int32_t *row_place;  /* [n_tokens·k] place of each row's token among those of its rank */
    parcel *leaving;     /* [n_ranks] */
    char *leaving_memory;
    /* What comes; rows of a round stand unit by unit: */
    parcel *coming;        /* [n_ranks] */
    token_source *sources; /* [n_ranks] */
    char *coming_memory;
    int64_t *guest_row; /* [n_ranks] first row of a unit in the arrays of a round */
    int64_t
        *kept_row; /* [n_ranks] and among the rows whose g and u training keeps; -1: it does not */
    experts experts;
    float *g, *u, *h, *out, *d_weight; /* [capacity, …] */
    dsmoe_bytes *send, *receive;       /* [n_ranks] */
    double sending, waiting;           /* seconds, see layer_times */
} travel;

/* For a unit of n_tokens here and of at most `most_tokens` anywhere; takes nothing if the layer is alone. */
typedef enum travel_use { TRAVEL_INFER, TRAVEL_TRAIN } travel_use;
travel travel_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int64_t most_tokens,
                    travel_use use, int n_threads);

/* Rows that a rank takes in at a time; rows whose g and u it keeps from forward to backward, first its own. */
int64_t travel_capacity(const dsmoe_layer *layer, int64_t most_tokens);
int64_t travel_kept_rows(const dsmoe_layer *layer);

/* Bytes of a message out. */
size_t travel_parcel_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_rows,
                          bool backward);

/* This rank's unit. */
typedef struct unit_pass {
    const dsmoe_layer *layer;
    const dispatch *dispatch;
    int64_t n_tokens;
    const float *x, *dy;
    const expert_rows *rows;
    experts *experts; /* for the rows that stay at home */
    bool again; /* forward has been here before: what is kept is enough, if the layer is alone */
} unit_pass;

/* Before forward: the ranks exchange what comes, and their status. */
dsmoe_status travel_agree(travel *t, const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                          bool has_more, dsmoe_status mine, dsmoe_error *error);

/* Rows of all the unit's tokens through their experts, and its tokens through the shared ones. */
dsmoe_status travel_forward(travel *t, const unit_pass *p, dsmoe_error *error);

/* The same backward. With ranks, the gradients of the shared experts are written, those of the routed ones that
 * are held here folded over the units of the wave, beginning with what is there if `accumulate`. */
dsmoe_status travel_backward(travel *t, const unit_pass *p, bool accumulate, dsmoe_error *error);

#endif

/* travel.h - runs the experts of a layer over the rows of one unit (see wave.h), whichever rank holds them.
 *
 * If another rank holds a row's expert, the row travels there and its result comes back. On that rank the row
 * is called a guest. The x of a token is sent to a rank only once, with a list that names the token of each
 * row, in the order of the experts. The rank runs one group for each (expert, unit). The group has the same
 * rows in the same order as on a machine that holds all experts, so all sums have the same bits. Results
 * return to the rank of the token, which combines them like those of its own experts. While rows travel, each
 * rank computes what needs no travel:
 *
 *   forward    x is sent                    meanwhile: rows that stay here
 *              guests: FFN
 *              output rows return           meanwhile: shared experts
 *   backward   x, dy, gate values are sent  meanwhile: rows that stay here
 *              guests: FFN again where g and u were not kept, then dx
 *              dx rows return               meanwhile: gradients of the weights, shared experts
 *              gradients of gate values return
 *
 * This happens once for each round of the wave (see wave.h). There is one round, unless the load is far from
 * balanced. */
#ifndef DSMOE_MOE_TRAVEL_H
#define DSMOE_MOE_TRAVEL_H

#include "moe/experts.h"
#include "moe/train.h"
#include "moe/wave.h"

/* One message from rank to rank: tokens, and the rows that they have there. */
typedef struct parcel {
    dsmoe_bytes bytes;
    float *x, *dy;  /* [tokens, hidden_size]; dy only in backward */
    float *weight;  /* [rows] gate values, only in backward */
    int32_t *token; /* [rows] which of these tokens each row belongs to */
} parcel;

typedef struct travel {
    wave wave;
    /* What this rank sends: */
    int32_t *last_rank,
        *place;          /* [n_tokens] the last rank that the token was listed for, and where */
    int64_t *n_sent;     /* [n_ranks] tokens for each rank */
    int32_t *sent_token; /* [n_tokens·k] the tokens for rank 0, those for rank 1, … */
    int32_t *row_place;  /* [n_tokens·k] index of each row's token among those for its rank */
    parcel *leaving;     /* [n_ranks] */
    char *leaving_memory;
    /* What this rank receives; the rows of a round are in the order of units: */
    parcel *coming;        /* [n_ranks] */
    token_source *sources; /* [n_ranks] */
    char *coming_memory;
    int64_t *guest_row; /* [n_ranks] first row of a unit in the arrays of a round */
    int64_t *kept_row;  /* [n_ranks] first row of a unit in the kept g and u; -1: not kept */
    experts experts;
    float *g, *u, *h, *out, *d_weight; /* [capacity, …] */
    dsmoe_bytes *send, *receive;       /* [n_ranks] */
    double sending, waiting;           /* seconds, see layer_times */
} travel;

/* Space for a unit of n_tokens on this rank and of at most `most_tokens` on the others. None if the layer has
 * no peers. */
typedef enum travel_use { TRAVEL_INFER, TRAVEL_TRAIN } travel_use;
travel travel_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int64_t most_tokens,
                    travel_use use, int n_threads);

/* The most guests that a rank takes in a round. */
int64_t travel_capacity(const dsmoe_layer *layer, int64_t most_tokens);
/* The most rows, its own first, whose g and u a rank keeps from forward to backward. */
int64_t travel_kept_rows(const dsmoe_layer *layer);

/* Bytes of a message with that many tokens and rows. */
size_t travel_parcel_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_rows,
                          bool backward);

/* This rank's unit. */
typedef struct unit_pass {
    const dsmoe_layer *layer;
    const dispatch *dispatch;
    int64_t n_tokens;
    const float *x, *dy;
    const expert_rows *rows;
    experts *experts; /* for the rows that do not travel */
    bool again;       /* forward runs again for g and u only (a layer with peers runs all of it) */
} unit_pass;

/* Call it before travel_forward. The ranks tell each other their status and how many rows they will send. */
dsmoe_status travel_agree(travel *t, const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                          bool has_more, dsmoe_status mine, dsmoe_error *error);

/* Runs all rows of the unit through their experts, and its tokens through the shared experts. */
dsmoe_status travel_forward(travel *t, const unit_pass *p, dsmoe_error *error);

/* The backward of travel_forward. If the layer has peers, the gradients of the shared experts are written.
 * Those of the routed experts held here are sums over the units of the wave, added to what is there if
 * `accumulate`. */
dsmoe_status travel_backward(travel *t, const unit_pass *p, bool accumulate, dsmoe_error *error);

#endif

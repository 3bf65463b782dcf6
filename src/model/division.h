/* division.h - sends the routed experts of a model to the ranks that hold them. Rank 0 (divide.c) has the
 * files, the other ranks (follow.c) have nothing; the part of both is here. The steps:
 *
 *   greeting   checks that all ranks compute in the same way
 *   terms      rank 0 says which model it is, or that there is none
 *   types      rank 0 sends the type of each matrix: then all ranks know each size and each holder
 *   claims     each rank says how much memory it takes and has, so all reach the same decision
 *   cargo      matrix after matrix is sent to its holder, in pieces; now and then all agree to go on
 *
 * Then the other ranks run the experts that they hold (serve_experts.h). */
#ifndef DSMOE_MODEL_DIVISION_H
#define DSMOE_MODEL_DIVISION_H

#include "model/model.h"
#include "peers/peers.h"

typedef struct division_terms {
    dsmoe_error failure; /* status OK unless there is no model */
    dsmoe_config config;
    int64_t most_tokens;  /* of a pass */
    int32_t keeps_octets; /* ranks store quantised matrices as octets instead of rows */
} division_terms;

typedef struct division_claim {
    char host[256];
    uint64_t experts, workspace; /* bytes that the rank takes */
    uint64_t available;          /* bytes available before it took any */
} division_claim;

typedef struct division {
    const dsmoe_peers *peers;
    division_terms terms;
    model_weights *weights; /* only their routed experts are used */
    /* From division_open to division_close: */
    unsigned char *types; /* [n_matrices] */
    size_t n_matrices;
    division_claim *claims;      /* [n_ranks] */
    dsmoe_bytes *send, *receive; /* [n_ranks] of scratch */
    size_t unagreed;             /* bytes sent since all ranks last agreed */
} division;

/* The most bytes in a piece of a matrix. */
enum { DIVISION_PIECE = 2 << 20 };

/* Call when the terms are known. */
dsmoe_status division_open(division *d, dsmoe_error *error);
void division_close(division *d); /* even if division_open failed */

/* A matrix of a routed expert. */
typedef struct cargo {
    matrix *matrix;
    int64_t n_rows, n_in;
    int holder; /* a rank */
} cargo;
static inline size_t cargo_size(const cargo *c) { return (size_t)(c->n_rows * c->matrix->stride); }

/* Visits the matrices of all routed experts, in the order in which they are sent, until `visit` fails. */
typedef dsmoe_status cargo_fn(void *context, const cargo *c, dsmoe_error *error);
dsmoe_status division_each(const division *d, cargo_fn *visit, void *context, dsmoe_error *error);

/* Gives all ranks the types of rank 0's matrices. */
dsmoe_status division_share_types(division *d, dsmoe_error *error);

/* Collects the claims of all ranks, with `mine` for this one, and judges them: if a machine does not have the
 * memory that its ranks take, all ranks fail. */
dsmoe_status division_share_claims(division *d, division_claim mine, dsmoe_error *error);

/* Whether it is time for all ranks to agree, after n_bytes more were sent. The same on all ranks. */
bool division_is_due(division *d, size_t n_bytes);

#endif

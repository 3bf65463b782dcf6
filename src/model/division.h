/* division.h - how the routed experts of a model come to the ranks that hold them. Rank 0 (divide.c) has the files, the
 * others (follow.c) nothing; what both do is here. In this order:
 *
 *   greeting   whether they compute alike
 *   terms      rank 0 says which model it is, or that there is none
 *   types      and the type of each matrix: from now on all know the size of everything and who holds it
 *   claims     each says what memory it takes and what is available: all come to the same judgement
 *   cargo      matrix after matrix to its holder, in pieces; now and then all agree that all is well
 *
 * Then the others run what they hold (serve_experts.h). */
#ifndef DSMOE_MODEL_DIVISION_H
#define DSMOE_MODEL_DIVISION_H

#include "model/model.h"
#include "peers/peers.h"

typedef struct division_terms {
    dsmoe_error failure; /* status OK unless there is no model */
    dsmoe_config config;
    int64_t most_tokens;  /* of a pass */
    int32_t keeps_octets; /* of matrices in blocks, instead of their rows */
} division_terms;

typedef struct division_claim {
    char host[256];
    uint64_t experts, workspace; /* bytes that the rank takes */
    uint64_t available;          /* and could have, before it took any */
} division_claim;

typedef struct division {
    const dsmoe_peers *peers;
    division_terms terms;
    model_weights *weights; /* of which only routed experts count */
    /* From division_open to division_close: */
    unsigned char *types; /* [n_matrices] */
    size_t n_matrices;
    division_claim *claims;      /* [n_ranks] */
    dsmoe_bytes *send, *receive; /* [n_ranks] of scratch */
    size_t unagreed;             /* bytes that travelled since all agreed */
} division;

/* A matrix goes in pieces of at most so many bytes. */
enum { DIVISION_PIECE = 2 << 20 };

/* When the terms are known. */
dsmoe_status division_open(division *d, dsmoe_error *error);
void division_close(division *d); /* after it failed, too */

/* A matrix of a routed expert. */
typedef struct cargo {
    matrix *matrix;
    int64_t n_rows, n_in;
    int holder; /* a rank */
} cargo;
static inline size_t cargo_size(const cargo *c) { return (size_t)(c->n_rows * c->matrix->stride); }

/* Visits all of them, in the order in which they travel, until `visit` fails. */
typedef dsmoe_status cargo_fn(void *context, const cargo *c, dsmoe_error *error);
dsmoe_status division_each(const division *d, cargo_fn *visit, void *context, dsmoe_error *error);

/* The types of the matrices of rank 0 become those of all. */
dsmoe_status division_share_types(division *d, dsmoe_error *error);

/* Fills in the claims, to which this rank adds its own, and judges them: a machine that cannot hold what its ranks
 * take is an error of all ranks. */
dsmoe_status division_share_claims(division *d, division_claim mine, dsmoe_error *error);

/* Whether, now that so many more bytes have travelled, it is time for all to agree. The same on all ranks. */
bool division_is_due(division *d, size_t n_bytes);

#endif

/* shares.h - which rank owns which numbers.
 *
 * Numbers of the same kind of work lie together in sections: the embedding, each layer, and what comes after
 * the last one. A section's gradient is complete at one moment of backward. Its numbers are cut into chunks,
 * a chunk being part of one tensor, and runs of chunks are dealt out to the ranks: the owner of a chunk adds
 * up its gradient, keeps its moments and makes its next weights. Chunks do not depend on the number of ranks,
 * so neither do sums over them. A rank alone owns everything.
 *
 * With experts divided over ranks, a routed expert belongs to the rank that runs it, whole, and to no
 * section. */
#ifndef DSMOE_TRAIN_SHARES_H
#define DSMOE_TRAIN_SHARES_H

#include "base/status.h"

struct dsmoe_trainer;

typedef struct section {
    int64_t begin, n; /* in the row of weights, gaps between tensors included */
    int64_t *cuts;    /* [n_ranks + 1]: rank r owns begin + cuts[r] … begin + cuts[r + 1] - 1 */
    int64_t own;      /* where this rank's part begins in its rows of gradients and moments */
} section;

typedef struct chunk {
    int64_t begin; /* in the row of weights; -1: this rank does not have it */
    int64_t own;   /* in the rows of gradients and moments; -1: another rank's */
    int64_t n;
    int owner;
    bool decays; /* as its tensor */
} chunk;

typedef struct shares {
    section *sections; /* [n_sections]: embedding, layers, the rest */
    int64_t n_sections;
    int64_t *cuts; /* of all of them */
    int64_t n_chunks;
    int64_t n_in_sections; /* numbers; those of divided experts come after them */
    int64_t n_own;         /* numbers in the rows of gradients and moments */
    int64_t n_own_in_sections;
    int64_t n_most;    /* numbers of the largest section but the first */
    int64_t n_partial; /* numbers of the largest part of a section that this rank owns */
} shares;

/* Bytes of the part of a section that a rank owns. */
static inline size_t section_part(const section *s, int rank)
{
    return (size_t)(s->cuts[rank + 1] - s->cuts[rank]) * sizeof(float);
}

/* Places the tensors of `trainer`, whose names and sizes are known, and deals them out. */
dsmoe_status shares_make(struct dsmoe_trainer *trainer, dsmoe_error *error);
void shares_free(shares *s);

/* Chunks are counted from 0 in the order of the tensors. */
chunk shares_chunk(const struct dsmoe_trainer *trainer, int64_t index);

/* The numbers first … end - 1 of a parameter that a rank owns; none: first is end. */
typedef struct share_range {
    int64_t first, end;
} share_range;
share_range shares_range(const struct dsmoe_trainer *trainer, size_t parameter, int rank);
/* Where a number of a parameter that this rank owns lies in the rows of gradients and moments. */
int64_t shares_own(const struct dsmoe_trainer *trainer, size_t parameter, int64_t number);
/* Whether the parameter belongs to an expert that one rank alone has. */
bool shares_is_divided(const struct dsmoe_trainer *trainer, size_t parameter);

#endif

/* shares.h - which rank owns which numbers.
 *
 * Numbers are grouped into sections: the embedding, each layer, and everything after the last layer. A
 * section's gradient is complete at one moment of backward. Its numbers are cut into chunks, each of which is
 * part of one tensor, and consecutive chunks are assigned to the ranks. The owner of a chunk adds up its
 * gradient, keeps its moments and computes its new weights. Chunks do not depend on the number of ranks, so
 * neither do sums over them. A single rank owns everything.
 *
 * If experts are divided over ranks, a routed expert belongs as a whole to the rank that runs it, and to
 * no section. */
#ifndef DSMOE_TRAIN_SHARES_H
#define DSMOE_TRAIN_SHARES_H

#include "base/status.h"

struct dsmoe_trainer;

typedef struct section {
    int64_t begin, n; /* place in the weights, with gaps between tensors */
    int64_t *cuts;    /* [n_ranks + 1]: rank r owns begin + cuts[r] … begin + cuts[r + 1] - 1 */
    int64_t own;      /* where this rank's part begins in its gradients and moments */
} section;

typedef struct chunk {
    int64_t begin; /* place in the weights; -1: not on this rank */
    int64_t own;   /* place in gradients and moments; -1: another rank's */
    int64_t n;
    int owner;
    bool decays; /* if its tensor does */
} chunk;

typedef struct shares {
    section *sections; /* [n_sections]: embedding, layers, the rest */
    int64_t n_sections;
    int64_t *cuts; /* cuts of all sections */
    int64_t n_chunks;
    int64_t n_in_sections; /* numbers; divided experts' numbers come after them */
    int64_t n_own;         /* numbers in gradients, and in each moment */
    int64_t n_own_in_sections;
    int64_t n_most;    /* numbers of the largest section except the first */
    int64_t n_partial; /* numbers of the largest part of a section that this rank owns */
} shares;

/* Bytes of the part of a section that a rank owns. */
static inline size_t section_part(const section *s, int rank)
{
    return (size_t)(s->cuts[rank + 1] - s->cuts[rank]) * sizeof(float);
}

/* Places the tensors of `trainer`, whose names and sizes are known, and assigns them to ranks. */
dsmoe_status shares_make(struct dsmoe_trainer *trainer, dsmoe_error *error);
void shares_free(shares *s);

/* Chunks are counted from 0 in the order of the tensors. */
chunk shares_chunk(const struct dsmoe_trainer *trainer, int64_t index);

/* The numbers first … end - 1 of a parameter that a rank owns; none if first is end. */
typedef struct share_range {
    int64_t first, end;
} share_range;
share_range shares_range(const struct dsmoe_trainer *trainer, size_t parameter, int rank);
/* The place in gradients and moments of a number that this rank owns. */
int64_t shares_own(const struct dsmoe_trainer *trainer, size_t parameter, int64_t number);
/* Whether the parameter belongs to an expert that only one rank has. */
bool shares_is_divided(const struct dsmoe_trainer *trainer, size_t parameter);

#endif

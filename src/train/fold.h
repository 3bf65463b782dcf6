/* fold.h - the gradient of a step out of those of its units.
 *
 * A unit is one batch that goes through the model at once. Its gradient is computed from zero, and the
 * step's is the fold over all units in their order, ((g0 + g1) + g2) …: whatever rank computed which, every
 * sum is the same. With several ranks a unit is each one's part of a wave. As soon as the gradient of a
 * section is complete, each rank sends it to the owners of its parts, which add up what they get in the order of
 * the ranks; meanwhile backward goes on with the section before it. */
#ifndef DSMOE_TRAIN_FOLD_H
#define DSMOE_TRAIN_FOLD_H

#include "model/weights.h"
#include "moe/low_rank_backward.h"
#include "train/shares.h"

struct dsmoe_trainer;

/* Where the gradients of a unit go. */
typedef struct gradient_set {
    model_weights *slots;
    dsmoe_layer_weights *moe;      /* [num_hidden_layers] the same of MoE layers */
    dsmoe_expert_weights *experts; /* their tables */
    low_rank_gradient *low;        /* of low-rank additions, by matrix.id */
} gradient_set;

typedef struct fold {
    gradient_set
        direct; /* straight into the row of gradients: a rank alone, the first unit of a step */
    gradient_set apart;       /* of all other units */
    const gradient_set *into; /* of this one */
    /* The unit's gradient: the first section has its place, the others take turns in two, or, alone, one. */
    float *first, *others;
    float *partials;    /* [n_ranks - 1, n_partial] of the other ranks */
    dsmoe_bytes *lists; /* [2, n_ranks]: what goes where, what comes from where */
    int64_t under_way;  /* the section that travels; -1: none */
} fold;

dsmoe_status fold_make(struct dsmoe_trainer *trainer, dsmoe_error *error);
/* Bytes of the unit's gradient and of the partials. */
size_t fold_size(const struct dsmoe_trainer *trainer);
/* Once the rows of the trainer are there. */
dsmoe_status fold_allocate(struct dsmoe_trainer *trainer, dsmoe_error *error);
void fold_free(fold *f);

/* A unit, or a wave of them, begins backward. */
void fold_begin(struct dsmoe_trainer *trainer);
/* Its gradient of a section is complete; sections come from the last to the first. */
dsmoe_status fold_section(struct dsmoe_trainer *trainer, int64_t section, dsmoe_error *error);
/* All are. */
dsmoe_status fold_end(struct dsmoe_trainer *trainer, dsmoe_error *error);

#endif

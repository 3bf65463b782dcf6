/* fold.h - adds up the gradients of a step's units.
 *
 * A unit is one batch that goes through the model at once. Its gradient is computed from zero. The step's
 * gradient is the fold over all units in their order, ((g0 + g1) + g2) …, so every sum is the same,
 * whichever rank computed which unit. With several ranks, each rank computes one unit of a wave. As soon
 * as the gradient of a section is complete, each rank sends it to the owners of its parts, which add up
 * what they receive in the order of the ranks. Meanwhile backward continues with the section before it. */
#ifndef DSMOE_TRAIN_FOLD_H
#define DSMOE_TRAIN_FOLD_H

#include "model/weights.h"
#include "moe/low_rank_backward.h"
#include "train/shares.h"

struct dsmoe_trainer;

/* Where the gradients of a unit are written. */
typedef struct gradient_set {
    model_weights *slots;
    dsmoe_layer_weights *moe;      /* [num_hidden_layers] the same for MoE layers */
    dsmoe_expert_weights *experts; /* tables that `moe` points to */
    low_rank_gradient *low;        /* for low-rank additions, by matrix.id */
} gradient_set;

typedef struct fold {
    gradient_set direct;      /* a single rank's first unit writes the step's gradient itself */
    gradient_set apart;       /* for all other units */
    const gradient_set *into; /* for the current unit */
    /* The unit's gradient: the first section has its own memory. The others take turns in two buffers, or
     * in one if there is a single rank. */
    float *first, *others;
    float *partials;    /* [n_ranks - 1, n_partial] from the other ranks */
    dsmoe_bytes *lists; /* [2, n_ranks]: what to send to each rank, where to receive from each */
    int64_t under_way;  /* the section being exchanged; -1: none */
} fold;

dsmoe_status fold_make(struct dsmoe_trainer *trainer, dsmoe_error *error);
/* Bytes of the unit's gradient and of the partials. */
size_t fold_size(const struct dsmoe_trainer *trainer);
/* Call this after the trainer's weights and gradients have been allocated. */
dsmoe_status fold_allocate(struct dsmoe_trainer *trainer, dsmoe_error *error);
void fold_free(fold *f);

/* A unit, or a wave of them, begins backward. */
void fold_begin(struct dsmoe_trainer *trainer);
/* The unit's gradient of a section is complete; sections come from the last to the first. */
dsmoe_status fold_section(struct dsmoe_trainer *trainer, int64_t section, dsmoe_error *error);
/* The gradients of all sections are complete. */
dsmoe_status fold_end(struct dsmoe_trainer *trainer, dsmoe_error *error);

#endif

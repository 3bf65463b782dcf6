/* correction.h - the bias of gates with noaux_tc: no gradient's, but the load's. */
#ifndef DSMOE_TRAIN_CORRECTION_H
#define DSMOE_TRAIN_CORRECTION_H

#include "report/metrics.h"
#include "train/trainer.h"

/* A unit's gradient by the bias of a layer, zero, where there is such a bias. AdamW, which neither moves nor decays a
 * vector without gradient, then leaves it as it is. */
void correction_clear(const dsmoe_trainer *trainer, int64_t layer, model_weights *gradients);

/* Ends a step: moves the biases, unless the update was skipped, and begins to count again. */
void correction_update(dsmoe_trainer *trainer, bool skipped);

bool correction_is_used(const dsmoe_trainer *trainer);
/* The lowest and the highest bias of each layer's experts: ranges [n_moe_layers]. */
void correction_ranges(const dsmoe_trainer *trainer, metrics_range *ranges);

#endif

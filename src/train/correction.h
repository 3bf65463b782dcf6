/* correction.h - the bias of gates with noaux_tc, which follows the load, not a gradient. */
#ifndef DSMOE_TRAIN_CORRECTION_H
#define DSMOE_TRAIN_CORRECTION_H

#include "report/metrics.h"
#include "train/trainer.h"

/* Sets a unit's gradient of a layer's bias to zero, if there is such a bias. AdamW, which neither moves
 * nor decays a vector without gradient, then leaves it as it is. */
void correction_clear(const dsmoe_trainer *trainer, int64_t layer, model_weights *gradients);

/* Ends a step: moves the biases, unless the update was skipped, and starts a new count. */
void correction_update(dsmoe_trainer *trainer, bool skipped);

bool correction_is_used(const dsmoe_trainer *trainer);
/* The lowest and the highest bias of each layer's experts: ranges [n_moe_layers]. */
void correction_ranges(const dsmoe_trainer *trainer, metrics_range *ranges);

#endif

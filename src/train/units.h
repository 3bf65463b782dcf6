/* units.h - a wave: the units that all ranks compute at a time, at most one each. For a single rank it is one
 * batch.
 *
 * After forward the ranks exchange the results: the losses, which experts were chosen, and whether
 * something was not finite, in which case no rank runs backward. */
#ifndef DSMOE_TRAIN_UNITS_H
#define DSMOE_TRAIN_UNITS_H

#include "train/trainer.h"

/* What a rank reports about its unit. It is followed by losses and loads of the layers, [n_moe_layers]
 * dsmoe_layer_losses and [n_moe_layers, n_routed_experts] int32_t. */
typedef struct unit_report {
    int32_t is_there; /* a rank may have no unit in a wave */
    int32_t status;   /* dsmoe_status of its forward pass */
    double loss;
    double accuracy, margin; /* of preferences */
} unit_report;

size_t units_report_size(const dsmoe_trainer *trainer);
/* The parts of a rank's report on the last wave. */
unit_report *units_report(const dsmoe_trainer *trainer, int rank);
dsmoe_layer_losses *units_layers(const dsmoe_trainer *trainer, int rank);
int32_t *units_load(const dsmoe_trainer *trainer, int rank);
/* The losses as dsmoe_trainer_backward gives them. */
dsmoe_batch_losses units_losses(const dsmoe_trainer *trainer, int rank);

#endif

/* units.h - the units that all ranks compute at a time, one each at the most: a wave; alone, one batch.
 *
 * After forward the ranks exchange how it went: the losses, which experts were chosen, and whether
 * something was not finite, in which case no rank goes backward. */
#ifndef DSMOE_TRAIN_UNITS_H
#define DSMOE_TRAIN_UNITS_H

#include "train/trainer.h"

/* What a rank says about its unit. Losses and loads of the layers, [n_moe_layers] dsmoe_layer_losses and
 * [n_moe_layers, n_routed_experts] int32_t, follow it. */
typedef struct unit_report {
    int32_t is_there; /* a rank may have no unit in a wave */
    int32_t status;   /* dsmoe_status of its forward pass */
    double loss;
    double accuracy, margin; /* of preferences */
} unit_report;

size_t units_report_size(const dsmoe_trainer *trainer);
/* Of the last wave. */
unit_report *units_report(const dsmoe_trainer *trainer, int rank);
dsmoe_layer_losses *units_layers(const dsmoe_trainer *trainer, int rank);
int32_t *units_load(const dsmoe_trainer *trainer, int rank);
/* As dsmoe_trainer_backward gives them. */
dsmoe_batch_losses units_losses(const dsmoe_trainer *trainer, int rank);

#endif

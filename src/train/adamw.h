/* adamw.h - the optimizer. */
#ifndef DSMOE_TRAIN_ADAMW_H
#define DSMOE_TRAIN_ADAMW_H

#include "train/trainer.h"

size_t adamw_size(const dsmoe_trainer *trainer); /* bytes of workspace */

/* One step with the mean gradient of n_batches batches; skipped if its norm is not finite. */
dsmoe_update adamw_update(dsmoe_trainer *trainer, double lr, void *workspace);

#endif

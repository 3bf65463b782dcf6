/* adamw.h - the AdamW optimizer for all parameters. */
#ifndef DSMOE_TRAIN_ADAMW_H
#define DSMOE_TRAIN_ADAMW_H

#include "train/trainer.h"

/* Bytes of workspace. */
size_t adamw_size(const dsmoe_trainer *trainer);
/* One step with the mean gradient of n_batches batches. It is skipped if the gradient's norm is not
 * finite. */
dsmoe_status adamw_update(dsmoe_trainer *trainer, double lr, void *workspace, dsmoe_update *update,
                          dsmoe_error *error);

#endif

/* arrival.h - sends new weights from their owners to all ranks.
 *
 * After an update every owner has new weights for its parts. The other ranks need them section by section,
 * as the next forward pass reaches each. So while one section is used in computation, the next one is
 * sent. Without other ranks all weights are always here. */
#ifndef DSMOE_TRAIN_ARRIVAL_H
#define DSMOE_TRAIN_ARRIVAL_H

#include "base/status.h"

struct dsmoe_trainer;

/* An update has made new weights; none are being sent yet. */
void arrival_expect(struct dsmoe_trainer *trainer);
/* Waits until all sections up to this one are here, and starts to receive the next. */
dsmoe_status arrival_await(struct dsmoe_trainer *trainer, int64_t section, dsmoe_error *error);
/* Waits until all sections are here. */
dsmoe_status arrival_finish(struct dsmoe_trainer *trainer, dsmoe_error *error);

#endif

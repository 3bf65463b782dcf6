/* arrival.h - new weights on their way from their owners to all ranks.
 *
 * After an update every owner has new weights of its parts, which the others need, section by section, only when the
 * next forward pass comes to it. So a section travels while the one before it is computed with. Without other ranks
 * everything is always here. */
#ifndef DSMOE_TRAIN_ARRIVAL_H
#define DSMOE_TRAIN_ARRIVAL_H

#include "base/status.h"

struct dsmoe_trainer;

/* An update has made new weights; nothing travels yet. */
void arrival_expect(struct dsmoe_trainer *trainer);
/* All sections up to this one are here, and the next is on its way. */
dsmoe_status arrival_await(struct dsmoe_trainer *trainer, int64_t section, dsmoe_error *error);
/* All are. */
dsmoe_status arrival_finish(struct dsmoe_trainer *trainer, dsmoe_error *error);

#endif

/* greet.h - the handshake of ranks that compute with a model together. */
#ifndef DSMOE_MODEL_GREET_H
#define DSMOE_MODEL_GREET_H

#include "base/status.h"

/* What ranks are about to do. Training greets with its dsmoe_parallel instead. */
enum { GREET_TO_DIVIDE = 1 << 16 };

/* Called by all ranks before anything else: checks that they have the same version, kernels and math library,
 * and the same `settings`. If not, all get the same error. */
dsmoe_status greet_ranks(const dsmoe_peers *peers, uint64_t settings, dsmoe_error *error);

#endif

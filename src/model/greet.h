/* greet.h - the handshake of ranks that compute with a model together. */
#ifndef DSMOE_MODEL_GREET_H
#define DSMOE_MODEL_GREET_H

#include "base/status.h"

/* What ranks are about to do, beside training, which greets with its dsmoe_parallel. */
enum { GREET_TO_DIVIDE = 1 << 16 };

/* All ranks, first of all: whether they have the same version, kernels and math library, and the same `settings`. If not,
 * they all get the same error. */
dsmoe_status greet_ranks(const dsmoe_peers *peers, uint64_t settings, dsmoe_error *error);

#endif

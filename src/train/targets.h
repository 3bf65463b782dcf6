/* targets.h - which matrices of a model get low-rank additions: words between commas, each a kind (attention, shared,
 * dense, routed) or the name of a module, or its end, as in PEFT's target_modules ("q_proj", "shared_experts.up_proj").
 * Only matrices of layers can have one, and neither the router nor kv_b_proj, which inference multiplies into the
 * queries. */
#ifndef DSMOE_TRAIN_TARGETS_H
#define DSMOE_TRAIN_TARGETS_H

#include "model/weights.h"

/* Whether every word means some matrix of the model. */
dsmoe_status targets_check(const dsmoe_config *config, const char *targets, dsmoe_error *error);
bool targets_match(const char *targets, const weight_spec *spec);

#endif

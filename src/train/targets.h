/* targets.h - which matrices of a model get low-rank additions: words between commas. Each word is a kind
 * (attention, shared, dense, routed), the name of a module, or the end of such a name, as in PEFT's
 * target_modules ("q_proj", "shared_experts.up_proj"). Only matrices of layers can have additions, except
 * the router and kv_b_proj, which inference multiplies into the queries. */
#ifndef DSMOE_TRAIN_TARGETS_H
#define DSMOE_TRAIN_TARGETS_H

#include "model/weights.h"

/* Checks that every word that is a name fits a matrix of the model, and that at least one word does. */
dsmoe_status targets_check(const dsmoe_config *config, const char *targets, dsmoe_error *error);
bool targets_match(const char *targets, const weight_spec *spec);

#endif

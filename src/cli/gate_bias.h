/* gate_bias.h - the bias that corrects the choice of a gate (noaux_tc), in three numbers. */
#ifndef DSMOE_CLI_GATE_BIAS_H
#define DSMOE_CLI_GATE_BIAS_H

#include <stdbool.h>

#include "dsmoe.h"

typedef struct gate_bias {
    const float *values; /* [n_routed_experts]; NULL: the gate has none */
    double low, mean, high;
} gate_bias;

gate_bias gate_bias_of(const dsmoe_model *model, int64_t layer);
/* Of each layer a line; nothing for a model that has none. */
void gate_bias_print(const dsmoe_model *model);
/* The same as a member of an object, with a comma before it. */
void gate_bias_print_json(const dsmoe_model *model);

#endif

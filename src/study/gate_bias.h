/* gate_bias.h - the bias that corrects the choice of a gate (noaux_tc), in three numbers. */
#ifndef DSMOE_STUDY_GATE_BIAS_H
#define DSMOE_STUDY_GATE_BIAS_H

#include "dsmoe.h"

typedef struct gate_bias {
    const float *values; /* [n_routed_experts]; NULL: the gate has none */
    double low, mean, high;
} gate_bias;

gate_bias gate_bias_of(const dsmoe_model *model, int64_t layer);

#endif

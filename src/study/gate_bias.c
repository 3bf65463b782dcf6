/* gate_bias.c - the correction bias of a gate (noaux_tc), and how far the loads of training have moved it. */
#include "study/gate_bias.h"

#include <math.h>

gate_bias gate_bias_of(const dsmoe_model *model, int64_t layer)
{
    int64_t n = dsmoe_model_config(model)->n_routed_experts;
    gate_bias bias = {.values = dsmoe_model_gate_bias(model, layer)};
    if (!bias.values) return bias;
    bias.low = bias.high = (double)bias.values[0];
    for (int64_t i = 0; i < n; i++) {
        double value = (double)bias.values[i];
        bias.low = fmin(bias.low, value);
        bias.high = fmax(bias.high, value);
        bias.mean += value / (double)n;
    }
    return bias;
}

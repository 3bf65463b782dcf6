/* gate_bias.h - the correction bias of a model's gate (noaux_tc). */
#ifndef DSMOE_STUDY_GATE_BIAS_H
#define DSMOE_STUDY_GATE_BIAS_H

#include "report/routing.h"

gate_bias gate_bias_of(const dsmoe_model *model, int64_t layer);

#endif

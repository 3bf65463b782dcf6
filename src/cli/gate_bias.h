/* gate_bias.h - the bias of gates (study/gate_bias.h), for people and programs. */
#ifndef DSMOE_CLI_GATE_BIAS_H
#define DSMOE_CLI_GATE_BIAS_H

#include "dsmoe.h"

/* Prints a line for each layer that has a bias. */
void gate_bias_print(const dsmoe_model *model);
/* The same as a member of an object, with a comma before it. */
void gate_bias_print_json(const dsmoe_model *model);

#endif

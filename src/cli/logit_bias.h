/* logit_bias.h - one value of --logit-bias: a token, and what is added to its score. */
#ifndef DSMOE_CLI_LOGIT_BIAS_H
#define DSMOE_CLI_LOGIT_BIAS_H

#include <stdbool.h>

#include "dsmoe.h"

/* "42:1.5", "42:-1.5", or as llama.cpp has it "42+1.5" and "42-1.5"; after a minus also "inf". False if
 * it is none of these. */
bool logit_bias_parse(const char *text, dsmoe_logit_bias *bias);

#endif

/* train_show.h - sequences to learn from as a person reads them. */
#ifndef DSMOE_CLI_TRAIN_SHOW_H
#define DSMOE_CLI_TRAIN_SHOW_H

#include "dsmoe.h"

/* To stdout, conversation by conversation. What is to be learnt is coloured on a terminal that wants colour, and
 * elsewhere between [[ and ]]. */
void train_show_sequence(const dsmoe_run_sequence *sequence);

#endif

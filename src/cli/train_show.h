/* train_show.h - shows training sequences as text. */
#ifndef DSMOE_CLI_TRAIN_SHOW_H
#define DSMOE_CLI_TRAIN_SHOW_H

#include "dsmoe.h"

/* Prints a sequence to stdout, conversation by conversation. What is learned is coloured on a terminal with
 * colour; otherwise it is between [[ and ]]. */
void train_show_sequence(const dsmoe_run_sequence *sequence);

#endif

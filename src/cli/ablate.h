/* ablate.h - the tables of `dsmoe ablate`. */
#ifndef DSMOE_CLI_ABLATE_H
#define DSMOE_CLI_ABLATE_H

#include "study/ablation.h"

/* Prints the results in tables, next to the paper's figures. */
void ablate_print_tables(const ablation *a);

#endif

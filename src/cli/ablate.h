/* ablate.h - what `dsmoe ablate` shows of a comparison. */
#ifndef DSMOE_CLI_ABLATE_H
#define DSMOE_CLI_ABLATE_H

#include "study/ablation.h"

/* The outcome in tables, beside the paper's figures. */
void ablate_print_tables(const ablation *a);

#endif

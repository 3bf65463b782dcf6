/* ablation_tables.h - the tables of a comparison's page. */
#ifndef DSMOE_REPORT_ABLATION_TABLES_H
#define DSMOE_REPORT_ABLATION_TABLES_H

#include <stdio.h>

#include "report/ablation.h"

/* Writes all numbers of the architectures, how they were trained, and the numbers of the probes. */
void ablation_tables_put(FILE *html, const ablation *a);

#endif

/* routing_page.h - the page of the experts (`dsmoe inspect --routing --html`). */
#ifndef DSMOE_REPORT_ROUTING_PAGE_H
#define DSMOE_REPORT_ROUTING_PAGE_H

#include <stdio.h>

#include "report/routing.h"

/* Writes the page. The caller must check whether everything was written. */
void routing_page_put(FILE *html, const routing_report *report);

/* Shows one layer at a time and draws how its experts fire together. A canvas has these attributes (lists are
 * separated by commas):
 *   data-experts  the numbers of the experts in the order of rows and columns
 *   data-counts   the tokens that chose each of them
 *   data-pairs    the tokens that chose both of two experts, row by row beyond the diagonal, in base 36,
 *                 empty for 0
 *   data-chance   multiplied by the counts of two experts: the tokens that would choose both by chance */
extern const char routing_script[];

#endif

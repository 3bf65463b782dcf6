/* routing_page.h - what the page that routing_html.c writes does beside what all pages do. */
#ifndef DSMOE_CLI_ROUTING_PAGE_H
#define DSMOE_CLI_ROUTING_PAGE_H

/* Shows one layer at a time and draws how its experts fire together. A canvas has these, lists by commas:
 *   data-experts  the numbers of the experts in the order of rows and columns
 *   data-counts   the tokens that chose each of them
 *   data-pairs    the tokens that chose both of two, row by row beyond the diagonal, to base 36, empty for 0
 *   data-chance   times both counts, the tokens that would choose both by chance */
extern const char routing_page_script[];

#endif

/* routing_page.h - the fixed parts of the page that routing_html.c writes. */
#ifndef DSMOE_CLI_ROUTING_PAGE_H
#define DSMOE_CLI_ROUTING_PAGE_H

/* Shades go from PAGE_NEVER and 0 (an eighth of the mean and less) over PAGE_MEAN to PAGE_SHADES - 1
 * (eight times and more); each is a CSS class s0…s12. */
enum { PAGE_SHADES = 13, PAGE_MEAN = 6 };

/* Lift of a pair as one letter: the first for no pair at all, then eight to a factor of two with
 * PAGE_LIFT_ONE for 1. The script reads them back. */
enum { PAGE_LIFTS = 62, PAGE_LIFT_ONE = 30 };
extern const char page_lift_letters[PAGE_LIFTS + 2];

extern const char routing_page_style[];
extern const char page_script[];

#endif

/* html_page.h - what tests ask of a page. */
#ifndef DSMOE_TESTS_HTML_PAGE_H
#define DSMOE_TESTS_HTML_PAGE_H

/* A file in the folder of the test as text, to be freed. */
char *read_page(const char *name);

/* Every element is closed in its turn, and no number is none. */
void assert_well_formed(const char *page);
/* Nothing is loaded from anywhere, and nothing runs but the script of all pages, which loads nothing and
 * makes no HTML of text. */
void assert_alone(const char *page);
void assert_shows(const char *page, const char *text);
void assert_hides(const char *page, const char *text);

#endif

/* html_page.h - checks of an HTML page. */
#ifndef DSMOE_TESTS_HTML_PAGE_H
#define DSMOE_TESTS_HTML_PAGE_H

/* A file in the folder of the test as text, to be freed. */
char *read_page(const char *name);

/* Elements are closed in order, and no number is NaN or infinite. */
void assert_well_formed(const char *page);
/* The page loads nothing and runs only the script that all pages have. That script loads nothing either
 * and makes no HTML from text. */
void assert_alone(const char *page);
void assert_shows(const char *page, const char *text);
void assert_hides(const char *page, const char *text);

#endif

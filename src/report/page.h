/* page.h - the frame of a report: one HTML file that needs no other, for light and dark screens, for
 * phones and for paper. */
#ifndef DSMOE_REPORT_PAGE_H
#define DSMOE_REPORT_PAGE_H

#include <stdio.h>

#include "base/status.h"
#include "formats/partial_file.h"

/* Writes FOLDER/NAME with the output of `put`, completely or not at all. While `put` writes, numbers have a
 * decimal point whatever the locale. */
dsmoe_status page_write(const char *folder, const char *name, partial_file_put_fn *put,
                        const void *context, dsmoe_error *error);

/* Writes the page up to and including the opening of <main>. refresh: seconds after which the browser reloads
 * the page, 0 if the page is final. */
void page_open(FILE *html, const char *title, int refresh);
/* more_script: the script that only this kind of page has; NULL: none. */
void page_close(FILE *html, const char *more_script);

/* Writes any text, escaped for HTML. Invisible characters other than line ends and tabs become U+FFFD. */
void page_text(FILE *html, const char *text);
/* The same, but cut to max_characters and an ellipsis. */
void page_text_cut(FILE *html, const char *text, size_t max_characters);

/* Copies as many whole characters as fit into `size` bytes; returns `out`. */
const char *page_shorten(const char *text, char *out, size_t size);

/* Opens a box with a heading and a line about its content; both are HTML. `about` may be NULL. */
void page_card_open(FILE *html, const char *title, const char *about);
void page_card_close(FILE *html);

/* Opens a cell. It has its column's name, plain text, which phones show because rows become lists there. */
void page_cell_open(FILE *html, const char *column);

/* Writes a headline number, within <dl class="facts">; the parts are HTML. */
void page_fact(FILE *html, const char *name, const char *value, const char *more);

/* CSS classes of colours: of lines, tones 0…7 in turn; of layers, by depth; of loads over the mean, where
 * PAGE_SHADES_OF_TWO shades make a factor of two. */
enum { PAGE_TONES = 8, PAGE_DEPTHS = 9, PAGE_SHADES = 13, PAGE_SHADES_OF_TWO = 3 };
const char *page_tone(size_t index);
const char *page_depth(size_t index, size_t count);
int page_shade(double ratio); /* 0…PAGE_SHADES - 1, -1 if it is not a number */

extern const char page_style[];
/* Shows the value of a mark (.hit with a <title> element or a title attribute) for pointer, finger and arrow
 * keys within an area (.plot, .marks), and shows what can be scrolled sideways (.wide). */
extern const char page_script[];

#endif

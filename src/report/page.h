/* page.h - the frame of a report: one HTML file that needs no other, for light and dark screens, for
 * phones and for paper. */
#ifndef DSMOE_REPORT_PAGE_H
#define DSMOE_REPORT_PAGE_H

#include <stdio.h>

#include "base/status.h"
#include "formats/partial_file.h"

/* FOLDER/NAME with what `put` writes, whole or not at all. Inside, numbers have a decimal point
 * whatever the locale. */
dsmoe_status page_write(const char *folder, const char *name, partial_file_put_fn *put,
                        const void *context, dsmoe_error *error);

/* Up to and including the opening of <main>; refresh: seconds after which the browser asks again, 0
 * if the page is final. */
void page_open(FILE *html, const char *title, int refresh);
/* more_script: what this kind of page does beside what all do; NULL: nothing. */
void page_close(FILE *html, const char *more_script);

/* Text that may hold anything, as text. What cannot be seen but line ends and tabs becomes U+FFFD. */
void page_text(FILE *html, const char *text);
/* The same, cut to so many characters with an ellipsis. */
void page_text_cut(FILE *html, const char *text, size_t max_characters);

/* A copy of as many whole characters as fit into `size` bytes; returns `out`. */
const char *page_shorten(const char *text, char *out, size_t size);

/* A box with a heading and a line that says what is to be seen; both are HTML. `about` may be NULL. */
void page_card_open(FILE *html, const char *title, const char *about);
void page_card_close(FILE *html);

/* One of the headline numbers, within <dl class="facts">; the parts are HTML. */
void page_fact(FILE *html, const char *name, const char *value, const char *more);

/* CSS classes: the colours of lines, tone 0…7 over and over; of layers by depth; of a load over the mean,
 * of which PAGE_SHADES_OF_TWO make a factor of two. */
enum { PAGE_TONES = 8, PAGE_DEPTHS = 9, PAGE_SHADES = 13, PAGE_SHADES_OF_TWO = 3 };
const char *page_tone(size_t index);
const char *page_depth(size_t index, size_t count);
int page_shade(double ratio); /* 0…PAGE_SHADES - 1, -1 if it is not a number */

extern const char page_style[];
/* Shows the values of marks (.hit with a <title>, or anything with .hit and a title) to pointer, finger and
 * arrow keys within an area (.plot, .marks), and says where something can be scrolled sideways (.wide). */
extern const char page_script[];

#endif

/* run_page.h - the page of a run, and its parts that are not charts over steps. A part writes nothing if the
 * run has no data for it. */
#ifndef DSMOE_REPORT_RUN_PAGE_H
#define DSMOE_REPORT_RUN_PAGE_H

#include <stdio.h>

#include "report/run_history.h"

/* Writes the page; `smooth` is series_smooth of the training loss. */
void run_page_put(FILE *html, const run_history *run, const series_point *smooth, const char *name);

void run_page_load(FILE *html, const run_history *run);     /* of each expert over time */
void run_page_kinds(FILE *html, const run_history *run);    /* loss and routing by kind of text */
void run_page_samples(FILE *html, const run_history *run);  /* text over time */
void run_page_settings(FILE *html, const run_history *run); /* folded tables */

#endif

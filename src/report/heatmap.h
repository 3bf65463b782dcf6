/* heatmap.h - a table of loads over the mean in colours, centred on 1. */
#ifndef DSMOE_REPORT_HEATMAP_H
#define DSMOE_REPORT_HEATMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/axis.h"

typedef struct heatmap {
    const char *name; /* plain text */
    size_t n_rows, n_columns;
    int row_height; /* pixels */
    /* The load over the mean, NAN for an empty cell. */
    double (*value)(const void *context, size_t row, size_t column);
    const void *context;
    const axis *x; /* what the columns stand for; NULL: their numbers from 0 on */
    const double
        *edges; /* [n_columns], with x: where each column ends; the first begins at x->low */
    const char *x_name, *y_name;  /* plain text */
    const char *const *row_names; /* [n_rows], plain text; NULL: numbers */
    /* Writes the text for hovering (HTML): of a cell, or of a row if column is n_columns. */
    void (*title)(FILE *html, const void *context, size_t row, size_t column);
    bool title_cells; /* a text for each cell, not only for each row */
    bool rows_lead;   /* a click on a row leads somewhere: the script of the page sees to it */
} heatmap;

void heatmap_put(FILE *html, const heatmap *map);
/* The colours and what they mean, which `name` says (HTML); `empty` is what an empty cell means, NULL if
 * there are none. */
void heatmap_legend(FILE *html, const char *name, const char *empty);

#endif

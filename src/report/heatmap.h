/* heatmap.h - a table of loads over the mean, as colours centred on 1. */
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
    const axis *x;         /* of the columns; NULL: they are numbered */
    const size_t *numbers; /* [n_columns] of the columns, if x is NULL; NULL: from 0 in turn */
    const double *edges;   /* [n_columns] the ends of the columns on x, which begin at x->low */
    const char *x_name, *y_name;  /* plain text */
    const char *const *row_names; /* [n_rows], plain text; NULL: numbers */
    /* Writes the text for hovering (HTML): of a cell, or of a row if column is n_columns. */
    void (*title)(FILE *html, const void *context, size_t row, size_t column);
    bool title_cells; /* a text for each cell, not only for each row */
    bool rows_lead;   /* a click on a row opens something, by the script of the page */
} heatmap;

void heatmap_put(FILE *html, const heatmap *map);
/* Writes the legend of the colours. `name` (HTML) says what they show, `empty` what an empty cell means;
 * NULL: there are no empty cells. */
void heatmap_legend(FILE *html, const char *name, const char *empty);

#endif

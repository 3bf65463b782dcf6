/* chart.h - charts as SVG that fits any width: the text keeps its size, the data are stretched. */
#ifndef DSMOE_REPORT_CHART_H
#define DSMOE_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/statistics.h"
#include "report/series.h"

/* How a line is drawn: flags that can be added. */
enum {
    CHART_FAINT = 1,  /* in the background */
    CHART_BAND = 2,   /* with the area between low and high */
    CHART_DOTS = 4,   /* with its points */
    CHART_BARS = 8,   /* with a bar from low to high at each point */
    CHART_STEPS = 16, /* it falls vertically: a value holds up to the next, lower point */
    CHART_DASHED = 32,
};

typedef struct chart_line {
    const char *name; /* plain text, for the legend and for hovering; NULL: in neither */
    const char *tone; /* CSS class of the colour */
    const series_point *points;
    size_t n;
    int form;
} chart_line;

typedef struct chart_mark {
    double x;
    char title[128]; /* plain text */
} chart_mark;

typedef struct chart {
    const char *name, *x_name, *y_name; /* plain text */
    const chart_line *lines;
    size_t n_lines;
    double x_low, x_high; /* NAN: those of the data */
    double y_low, y_high; /* the axis covers at least these; NAN: those of the data */
    double y_top;         /* points above it may be outside the chart; NAN: no points may */
    bool log_y;
    bool x_percent; /* x is a share */
    bool no_legend; /* the page has one already */
    bool tall;
    const char *level_name; /* of a line across at `level`, to compare with; NULL: none */
    double level;
    const chart_mark *marks; /* on the x axis */
    size_t n_marks;
} chart;

chart chart_make(const char *name, const char *x_name, const char *y_name);
/* The top of the y axis; NAN if no line has a point. */
double chart_top(const chart *c);
/* Writes nothing if no line has a point. */
void chart_put(FILE *html, const chart *c);

/* Writes the names and colours of lines and of a level (NULL: none), for one chart or for several. */
void chart_legend(FILE *html, const chart_line *lines, size_t n, const char *level_name);

/* Rows of single values with their mean and standard deviation, on one axis. */
typedef struct chart_row {
    const char *label; /* plain text */
    const char *tone;
    const double *values;
    size_t n;
} chart_row;
/* `decimals` is for the means, which are written below the labels. */
void chart_rows(FILE *html, const char *name, const char *x_name, const chart_row *rows, size_t n,
                int decimals);

/* Columns that are numbered from 0 and coloured by their value over the level. */
typedef struct chart_columns {
    const char *name, *x_name, *y_name; /* plain text */
    const char *level_name;
    double level; /* > 0 */
    size_t n;
    double (*value)(const void *context, size_t column);
    void (*title)(FILE *html, const void *context, size_t column); /* HTML */
    const void *context;
} chart_columns;
/* The y axis shows the values in per cent. */
void chart_columns_put(FILE *html, const chart_columns *c);

#endif

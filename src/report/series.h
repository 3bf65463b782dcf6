/* series.h - numbers over steps, however many there are, in a bounded number of points: when all points
 * are taken, each two neighbours become one, which knows their mean and their extremes. */
#ifndef DSMOE_REPORT_SERIES_H
#define DSMOE_REPORT_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct series_point {
    double x, y;      /* means of what was put in */
    double low, high; /* of y: the extremes, or the ends of an error bar */
    double n;         /* how many */
} series_point;

typedef struct series {
    series_point *points;
    size_t count, capacity;
    double per_point, last_x;
} series;

/* `capacity` is at least 2; false if there is no memory. */
bool series_init(series *s, size_t capacity);
void series_free(series *s); /* allowed on zeros */

/* Ignores what is not a finite number, and an x that is not beyond the one before. */
void series_add(series *s, double x, double y);

/* The point nearest to x; NULL if there is none. */
const series_point *series_near(const series_point *points, size_t n, double x);

/* A smooth version of y in points of the same number, to be freed; NULL if there is no memory. */
series_point *series_smooth(const series *s);

#endif

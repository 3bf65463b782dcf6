/* series.h - numbers over steps, however many there are, in a bounded number of points. When all points are
 * taken, each pair of neighbours becomes one point, which has their mean and their extremes. */
#ifndef DSMOE_REPORT_SERIES_H
#define DSMOE_REPORT_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct series_point {
    double x, y;      /* means of the numbers that were added */
    double low, high; /* of y: the extremes, or the ends of an error bar */
    double n;         /* how many numbers were added */
} series_point;

typedef struct series {
    series_point *points;
    size_t count, capacity;
    double per_point, last_x;
} series;

/* `capacity` is at least 2; false if out of memory. */
bool series_init(series *s, size_t capacity);
void series_free(series *s); /* allowed on zeros */

/* Adds a number. One that is not finite is ignored, and so is an x that is not above the one before. */
void series_add(series *s, double x, double y);

/* The point nearest to x; NULL if there is none. */
const series_point *series_near(const series_point *points, size_t n, double x);

/* The points with y smoothed, in memory to free(); NULL if out of memory. */
series_point *series_smooth(const series *s);

#endif

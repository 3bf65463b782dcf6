/* axis.h - an axis: a range, its ticks, and the places of numbers on it. */
#ifndef DSMOE_REPORT_AXIS_H
#define DSMOE_REPORT_AXIS_H

#include <stdbool.h>

enum { AXIS_MAX_TICKS = 16 };

typedef struct axis {
    double low, high; /* low < high */
    bool is_log;      /* low > 0 */
    double ticks[AXIS_MAX_TICKS];
    int n_ticks;
    int decimals; /* that the ticks of a linear axis need to differ */
} axis;

/* An axis over [low, high] with about n_ticks ticks. `widen`: moves the ends outwards to ticks. `whole`:
 * ticks are whole numbers. low and high are finite and at most 1e30. */
axis axis_linear(double low, double high, int n_ticks, bool widen, bool whole);
/* A logarithmic axis; 0 < low <= high. */
axis axis_log(double low, double high);

/* 0 at the low end, 1 at the high end; below 0 or above 1 outside the axis. */
double axis_place(const axis *a, double value);

#endif

/* axis.h - from numbers to places: a range with round ends and the ticks on it. */
#ifndef DSMOE_REPORT_AXIS_H
#define DSMOE_REPORT_AXIS_H

#include <stdbool.h>

enum { AXIS_MAX_TICKS = 16 };

typedef struct axis {
    double low, high; /* low < high */
    bool is_log;      /* low > 0 */
    double ticks[AXIS_MAX_TICKS];
    int n_ticks;
    int decimals; /* that tell the ticks of a linear axis apart */
} axis;

/* About n_ticks ticks over [low, high]. `widen`: the ends become ticks; otherwise they stay where they are.
 * `whole`: ticks are whole numbers. Finite numbers of at most 1e30. */
axis axis_linear(double low, double high, int n_ticks, bool widen, bool whole);
/* 0 < low <= high */
axis axis_log(double low, double high);

/* 0 at the low end, 1 at the high one, and beyond outside. */
double axis_place(const axis *a, double value);

#endif

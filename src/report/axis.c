/* axis.c - an axis: a range, its ticks, and the places of numbers on it. */
#include "report/axis.h"

#include <math.h>

/* A step of 1, 2 or 5 times a power of ten. About n steps make up the range. */
static double round_step(double range, int n)
{
    double raw = range / n, power = pow(10, floor(log10(raw))), times = raw / power;
    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static void put_ticks(axis *a, double step)
{
    const double slack = 1e-6;
    double first = ceil(a->low / step - slack);
    for (double i = first; i * step <= a->high + slack * step; i++) {
        if (a->n_ticks == AXIS_MAX_TICKS) return;
        a->ticks[a->n_ticks++] = i == 0 ? 0 : i * step; /* no -0 */
    }
}

axis axis_linear(double low, double high, int n_ticks, bool widen, bool whole)
{
    double size = fmax(fabs(low), fabs(high));
    if (!(high - low > 1e-6 * size)) { /* a single value gets some room around it */
        double room = size > 0 ? 0.05 * size : 1;
        low -= low == 0 ? 0 : room;
        high += room;
    }
    double step = round_step(high - low, n_ticks);
    if (whole && step < 1) step = 1;
    double decimals = -floor(log10(step) + 1e-6);
    axis a = {.low = low, .high = high, .decimals = decimals > 0 ? (int)decimals : 0};
    if (widen) {
        a.low = step * floor(low / step + 1e-6);
        a.high = step * ceil(high / step - 1e-6);
    }
    put_ticks(&a, step);
    return a;
}

/* Rounds up or down to 1, 2 or 5 times a power of ten. */
static double round_outwards(double value, bool up)
{
    double power = pow(10, floor(log10(value))), times = value / power;
    const double slack = 1e-9;
    if (up)
        return power * (times <= 1 + slack   ? 1
                        : times <= 2 + slack ? 2
                        : times <= 5 + slack ? 5
                                             : 10);
    return power * (times >= 10 - slack ? 10 : times >= 5 - slack ? 5 : times >= 2 - slack ? 2 : 1);
}

axis axis_log(double low, double high)
{
    axis a = {
        .low = round_outwards(low, false), .high = round_outwards(high, true), .is_log = true};
    if (a.high < 1.5 * a.low) a.high = round_outwards(1.5 * a.low, true);
    double decades = log10(a.high / a.low), first = floor(log10(a.low) + 1e-9);
    bool fine = decades < 2.5; /* then 2 and 5 are ticks as well */
    double every = fine ? 1 : ceil(decades / 6);
    for (double power = first; power <= first + decades + 1; power += every)
        for (int times = 1; times <= (fine ? 5 : 1); times += times == 1 ? 1 : 3) {
            double tick = times * pow(10, power);
            if (tick < a.low * 0.999 || tick > a.high * 1.001) continue;
            if (a.n_ticks < AXIS_MAX_TICKS) a.ticks[a.n_ticks++] = tick;
        }
    return a;
}

double axis_place(const axis *a, double value)
{
    if (!a->is_log) return (value - a->low) / (a->high - a->low);
    if (!(value > 0)) return -1; /* below everything */
    return log(value / a->low) / log(a->high / a->low);
}

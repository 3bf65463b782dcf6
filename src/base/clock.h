/* clock.h - seconds on a clock that only goes forward. */
#ifndef DSMOE_BASE_CLOCK_H
#define DSMOE_BASE_CLOCK_H

#include <time.h>

static inline double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

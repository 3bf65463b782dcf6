/* seriation.h - an order in which things that belong together are side by side. */
#ifndef DSMOE_REPORT_SERIATION_H
#define DSMOE_REPORT_SERIATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds an order of n things. affinity [n, n] says how well each pair goes together; it is symmetric, and its
 * diagonal has no effect. The same numbers give the same order. False if out of memory. */
bool seriation_order(const double *affinity, size_t n, int32_t *order);

#endif

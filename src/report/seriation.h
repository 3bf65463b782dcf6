/* seriation.h - an order in which what belongs together stands side by side. */
#ifndef DSMOE_REPORT_SERIATION_H
#define DSMOE_REPORT_SERIATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of n things, of which affinity [n, n] (symmetric, its diagonal is not read) tells how well each
 * two go together. The same numbers give the same order. False if there is no memory. */
bool seriation_order(const double *affinity, size_t n, int32_t *order);

#endif

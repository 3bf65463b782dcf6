/* data_order.h - a random order of 0 … n-1 as a function: no list of it is ever stored. */
#ifndef DSMOE_BASE_DATA_ORDER_H
#define DSMOE_BASE_DATA_ORDER_H

#include <stdint.h>

/* What comes at place `index` < n of order `number` of a seed: each of 0 … n-1 at one place. n is at
 * least 1 and at most 2^31. */
int64_t data_order_at(int64_t n, uint64_t seed, uint64_t number, int64_t index);

#endif

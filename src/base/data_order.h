/* data_order.h - a random order of 0 … n-1 as a function, so that no list has to be stored. */
#ifndef DSMOE_BASE_DATA_ORDER_H
#define DSMOE_BASE_DATA_ORDER_H

#include <stdint.h>

/* The number at place `index` < n in order `number` of a seed. Each of 0 … n-1 is at one place. n is 1 to
 * 2^31. */
int64_t data_order_at(int64_t n, uint64_t seed, uint64_t number, int64_t index);

#endif

/* rng.h - random numbers by position: element i of stream s of a seed is a pure function of these three. So
 * any thread can make any part of a tensor, and every machine makes the same bits. */
#ifndef DSMOE_BASE_RNG_H
#define DSMOE_BASE_RNG_H

#include <stdint.h>

uint64_t rng_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Write elements [first, first + n) of a stream to `out`. */
void rng_uniform(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first, float low,
                 float high);
void rng_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                float deviation);

#endif

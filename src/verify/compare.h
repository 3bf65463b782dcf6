/* compare.h - how far our numbers are from the expected ones. */
#ifndef DSMOE_VERIFY_COMPARE_H
#define DSMOE_VERIFY_COMPARE_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

/* Collects pairs of numbers; starts as {0}. */
typedef struct difference {
    double max_abs;      /* largest |ours - expected| so far */
    double max_expected; /* largest |expected| so far */
    bool undefined;      /* there was a NaN, or infinities without a difference */
} difference;

void difference_add(difference *sum, double ours, double expected);
/* `expected` has a floating-point type and as many elements as `ours`. */
void difference_add_tensor(difference *sum, const float *ours, const safetensors_tensor *expected);
/* The same for elements [first, first + n) of `expected`; ours[0] belongs to the first of them. */
void difference_add_part(difference *sum, const float *ours, const safetensors_tensor *expected,
                         size_t first, size_t n);

/* Adds all pairs of `part`. */
void difference_merge(difference *sum, const difference *part);

/* The result. The difference is relative to the largest expected magnitude, so numbers that are small
 * compared with the others need not be exact. If all expected numbers are zero, ours must be zero too. NaN
 * on either side is never ok. */
dsmoe_check difference_check(const difference *sum, const char *name, double tolerance);

/* Whether one token's chosen experts are the expected ones, k of each in any order. */
bool compare_experts(const int32_t *ours, const int64_t *expected, int64_t k);
/* Adds their gate values, matched by expert. An expert that only one side chose has gate 0 on the other
 * side. */
void difference_add_gates(difference *sum, const int32_t *ours, const float *our_gates,
                          const int64_t *expected, const float *expected_gates, int64_t k);

#endif

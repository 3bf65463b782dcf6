/* compare.h - how far our numbers lie from the expected ones. */
#ifndef DSMOE_VERIFY_COMPARE_H
#define DSMOE_VERIFY_COMPARE_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

/* Collects pairs of numbers; starts as {0}. */
typedef struct difference {
    double max_abs;      /* largest |ours - expected| so far */
    double max_expected; /* largest |expected| so far */
    bool undefined;      /* a NaN came in, or infinities that have no difference */
} difference;

void difference_add(difference *sum, double ours, double expected);
/* `expected` has a floating-point type and as many elements as `ours`. */
void difference_add_tensor(difference *sum, const float *ours, const safetensors_tensor *expected);
/* Elements [first, first + n) of it, with ours[0] for the first of them. */
void difference_add_part(difference *sum, const float *ours, const safetensors_tensor *expected,
                         size_t first, size_t n);

/* As if the pairs of `part` had come in here. */
void difference_merge(difference *sum, const difference *part);

/* The outcome. The measure is relative to the largest expected magnitude, so that numbers that are
 * small beside their neighbours need not be exact; where all expected numbers are zero, ours must
 * be zero too. NaN on either side is never ok. */
dsmoe_check difference_check(const difference *sum, const char *name, double tolerance);

/* The chosen experts of one token: ours, and expected, k of each in any order. */
bool compare_experts(const int32_t *ours, const int64_t *expected, int64_t k);
/* Their gate values, matched by expert; an expert only one side chose counts as gate 0 on the
 * other. */
void difference_add_gates(difference *sum, const int32_t *ours, const float *our_gates,
                          const int64_t *expected, const float *expected_gates, int64_t k);

#endif

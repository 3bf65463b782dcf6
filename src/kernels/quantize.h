/* quantize.h - float32 to every other type. These are pure functions. They are much slower than widening,
 * because they search for the scales that lose the least. */
#ifndef DSMOE_KERNELS_QUANTIZE_H
#define DSMOE_KERNELS_QUANTIZE_H

#include "base/dtype.h"

/* Converts n numbers (whole blocks) of one row to `type`, which may be any. `importance` [n] (may be NULL) is
 * the weight of each number's squared error, relative to the others of the row; it must be finite and not
 * negative. Numbers must be finite; the result is then finite too. The same input gives the same bits on
 * every machine. */
void quantize_row(dsmoe_dtype type, int64_t n, const float *x, const float *importance, void *out);

#endif

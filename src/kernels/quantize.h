/* quantize.h - float32 to every other type: the nearest blocks that a search finds. Pure functions;
 * slow beside their reverse, since scales are searched for, not only computed. */
#ifndef DSMOE_KERNELS_QUANTIZE_H
#define DSMOE_KERNELS_QUANTIZE_H

#include "base/dtype.h"

/* n numbers (whole blocks) of one row as `type`, which may be any. `importance` [n] (may be NULL)
 * says how much a squared error of each counts beside the others of the row: finite and not
 * negative. Numbers must be finite; the result is then finite too. The same input gives the same
 * bits on every machine. */
void quantize_row(dsmoe_dtype type, int64_t n, const float *x, const float *importance, void *out);

#endif

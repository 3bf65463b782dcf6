/* combine.h - from rows back to tokens. */
#ifndef DSMOE_MOE_COMBINE_H
#define DSMOE_MOE_COMBINE_H

#include "moe/dispatch.h"

/* y_t = (add ? y_t : 0) + Σ_s topk_weight_{t,s} · row_values[row of (t, s)], slots in rising order. All
 * weights are 1 if topk_weight is NULL. The result does not depend on the number of threads. */
void combine_rows(const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                  const float *row_values, const float *topk_weight, float *y, bool add,
                  int n_threads);

#endif

/* combine.h - from rows back to tokens. */
#ifndef DSMOE_MOE_COMBINE_H
#define DSMOE_MOE_COMBINE_H

#include "moe/dispatch.h"

/* y_t = (add ? y_t : 0) + Σ_s weight_{t,s} · rows[row of (t, s)], slots in rising order; a NULL
 * weight counts as 1. Threads split tokens, so no sum depends on them. */
void combine_rows(const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                  const float *row_values, const float *topk_weight, float *y, bool add,
                  int n_threads);

#endif

/* dispatch.h - from "token t chose expert i" to "expert i has these rows".
 *
 * A row is one (token, slot) pair. Rows are sorted by expert, so that each expert's rows are one
 * contiguous range: what a grouped product wants, and what several machines would exchange. No
 * token is dropped, and an expert that no token chose has an empty range. */
#ifndef DSMOE_MOE_DISPATCH_H
#define DSMOE_MOE_DISPATCH_H

#include "base/arena.h"
#include "moe/moe.h"

typedef struct dispatch {
    int32_t *offsets; /* [n_routed_experts + 1]: expert i has rows offsets[i] … offsets[i+1]-1 */
    int32_t *row_token; /* [n_tokens·k]: whose row it is */
    int32_t *row_slot;  /* [n_tokens·k]: t·k + s, where its gate value stands */
    int32_t *slot_row;  /* [n_tokens·k]: the inverse */
} dispatch;

dispatch dispatch_place(arena *a, const dsmoe_layer_config *config, int64_t n_tokens);
void dispatch_sort(const dispatch *d, const dsmoe_layer_config *config, const int32_t *topk_idx,
                   int64_t n_tokens);

#endif

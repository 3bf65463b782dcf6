/* dispatch.h - from "token t chose expert i" to "expert i has these rows".
 *
 * A row is one (token, slot) pair. Rows are sorted by expert, so that each expert's rows are one
 * contiguous range, as grouped products and the exchange between ranks need them. No token is
 * dropped. An expert that no token chose has an empty range. */
#ifndef DSMOE_MOE_DISPATCH_H
#define DSMOE_MOE_DISPATCH_H

#include "base/arena.h"
#include "moe/moe.h"

typedef struct dispatch {
    int32_t *offsets; /* [n_routed_experts + 1]: expert i has rows offsets[i] … offsets[i+1]-1 */
    int32_t *row_token; /* [n_tokens·k]: the token of each row */
    int32_t *row_slot;  /* [n_tokens·k]: t·k + s, the index of each row's gate value */
    int32_t *slot_row;  /* [n_tokens·k]: the inverse of row_slot */
} dispatch;

dispatch dispatch_place(arena *a, const dsmoe_layer_config *config, int64_t n_tokens);
void dispatch_sort(const dispatch *d, const dsmoe_layer_config *config, const int32_t *topk_idx,
                   int64_t n_tokens);

#endif

/* dispatch.c - a counting sort: count, prefix sum, scatter. It is stable, so the rows of an expert are in the
 * order of their tokens. */
#include "moe/dispatch.h"

#include <string.h>

dispatch dispatch_place(arena *a, const dsmoe_layer_config *c, int64_t n_tokens)
{
    int64_t n_rows = n_tokens * c->num_experts_per_tok;
    return (dispatch){
        .offsets = arena_take(a, c->n_routed_experts + 1, sizeof(int32_t)),
        .row_token = arena_take(a, n_rows, sizeof(int32_t)),
        .row_slot = arena_take(a, n_rows, sizeof(int32_t)),
        .slot_row = arena_take(a, n_rows, sizeof(int32_t)),
    };
}

void dispatch_sort(const dispatch *d, const dsmoe_layer_config *c, const int32_t *topk_idx,
                   int64_t n_tokens)
{
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok, n_rows = n_tokens * k;

    memset(d->offsets, 0, (size_t)(n + 1) * sizeof *d->offsets);
    for (int64_t slot = 0; slot < n_rows; slot++) d->offsets[topk_idx[slot] + 1]++;
    for (int64_t i = 0; i < n; i++) d->offsets[i + 1] += d->offsets[i];

    /* Here offsets[i] is the next free row of expert i. Afterwards it is the end of expert i, which is the
     * beginning of expert i + 1, so the array is shifted by one. */
    for (int64_t slot = 0; slot < n_rows; slot++) {
        int32_t row = d->offsets[topk_idx[slot]]++;
        d->row_token[row] = (int32_t)(slot / k);
        d->row_slot[row] = (int32_t)slot;
        d->slot_row[slot] = row;
    }
    memmove(d->offsets + 1, d->offsets, (size_t)n * sizeof *d->offsets);
    d->offsets[0] = 0;
}

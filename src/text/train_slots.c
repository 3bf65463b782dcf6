/* train_slots.c - a hash index over the items of another array. */
#include "text/train_slots.h"

#include <stdlib.h>
#include <string.h>

dsmoe_status train_slots_reserve(train_slots *slots, size_t n_items, train_slots_hash_fn *hash,
                                 const void *context, dsmoe_error *error)
{
    if (2 * (n_items + 1) <= slots->n_slots) return DSMOE_OK;
    if (n_items >= TRAIN_SLOTS_MAX)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "the text has more than %d different words: use less of it",
                           TRAIN_SLOTS_MAX);
    train_slots larger = {.n_slots = slots->n_slots ? 2 * slots->n_slots : 1024};
    larger.items = calloc(larger.n_slots, sizeof *larger.items);
    if (!larger.items)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu words",
                           larger.n_slots);
    for (size_t i = 0; i < n_items; i++) {
        size_t slot = train_slots_first(&larger, hash(context, i));
        while (larger.items[slot]) slot = train_slots_next(&larger, slot);
        larger.items[slot] = (uint32_t)i + 1;
    }
    free(slots->items);
    *slots = larger;
    return DSMOE_OK;
}

void train_slots_free(train_slots *slots)
{
    free(slots->items);
    memset(slots, 0, sizeof *slots);
}

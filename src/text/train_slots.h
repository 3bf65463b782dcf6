/* train_slots.h - a hash index over the items of another array: open addressing over a power of two, at
 * most half full. The owner of the items compares them. */
#ifndef DSMOE_TEXT_TRAIN_SLOTS_H
#define DSMOE_TEXT_TRAIN_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TRAIN_SLOTS_MAX = 1 << 30 }; /* items */

typedef struct train_slots {
    uint32_t *items; /* index of an item plus 1; 0: free */
    size_t n_slots;
} train_slots;

typedef uint64_t train_slots_hash_fn(const void *context, size_t item);

/* Makes room for one more item than `n_items`. Hashes of items must not change. */
dsmoe_status train_slots_reserve(train_slots *slots, size_t n_items, train_slots_hash_fn *hash,
                                 const void *context, dsmoe_error *error);
/* Allowed on zeroed slots. */
void train_slots_free(train_slots *slots);

/* A search walks from the first slot of a hash, slot by slot, until it finds the item or a free slot. */
static inline size_t train_slots_first(const train_slots *slots, uint64_t hash)
{
    return (hash ^ hash >> 32) & (slots->n_slots - 1);
}

static inline size_t train_slots_next(const train_slots *slots, size_t slot)
{
    return (slot + 1) & (slots->n_slots - 1);
}

#endif

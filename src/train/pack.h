/* pack.h - which conversations share a sequence.
 *
 * Best fit, the longest first: each conversation goes into the sequence with the least room that is enough
 * for it, or begins a new sequence. The result depends on the lengths alone. */
#ifndef DSMOE_TRAIN_PACK_H
#define DSMOE_TRAIN_PACK_H

#include "base/status.h"

typedef struct packing {
    uint32_t *items; /* the numbers of all items, sequence after sequence */
    uint32_t *first; /* [n_sequences + 1] where the items of a sequence begin */
    size_t n_sequences;
} packing;

/* Packs n items, of 1 to `room` places each, into sequences of `room` places. `alone`: each item into its
 * own sequence, in order. */
dsmoe_status pack_items(const uint32_t *lengths, size_t n, uint32_t room, bool alone, packing *out,
                        dsmoe_error *error);
void packing_free(packing *out); /* a zeroed struct is allowed */

#endif

/* pack.h - which conversations share a sequence.
 *
 * Best fit, the longest first: each goes where the least room is left that it fits into, or begins a sequence. What
 * comes of it is a function of the lengths alone. */
#ifndef DSMOE_TRAIN_PACK_H
#define DSMOE_TRAIN_PACK_H

#include "base/status.h"

typedef struct packing {
    uint32_t *items; /* numbers of all, those of one sequence after the other */
    uint32_t *first; /* [n_sequences + 1] where those of a sequence begin */
    size_t n_sequences;
} packing;

/* Packs n items, of 1 to `room` places each, into sequences of `room` places; or each alone, in their order. */
dsmoe_status pack_items(const uint32_t *lengths, size_t n, uint32_t room, bool alone, packing *out,
                        dsmoe_error *error);
void packing_free(packing *out); /* allowed on zeros */

#endif

/* halves.h - what a layer keeps for backward, in 16 bits.
 *
 * Backward through weights in blocks is exact to a few parts in ten thousand (kernels.h), and so are numbers in float16.
 * So with such weights what forward leaves for backward is rounded to float16, whether it was kept or is made again, and
 * in the same memory nearly twice as many layers keep theirs. */
#ifndef DSMOE_TRAIN_HALVES_H
#define DSMOE_TRAIN_HALVES_H

#include "kernels/kernels.h"

/* Some memory of a layer, a multiple of a cache line: floats that may be rounded, or anything else. */
typedef struct kept_piece {
    void *at;
    size_t size;
    bool is_rounded;
} kept_piece;

enum { KEPT_PIECES = 4 };

/* Of all pieces of a layer: those that are rounded take half of their size. */
size_t halves_size(const kept_piece pieces[KEPT_PIECES]);
/* Pieces into a store; NULL: they are rounded where they are. Larger numbers than float16 has become its largest. */
void halves_keep(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads);
/* And back. */
void halves_take(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads);

#endif

/* halves.h - what a layer keeps for backward, in 16 bits.
 *
 * Backward through quantised weights is exact to a few parts in ten thousand (kernels.h), and so are
 * numbers in float16. So with such weights the values that forward leaves for backward are rounded to
 * float16, whether they were kept or are computed again. In the same memory nearly twice as many layers
 * can keep theirs. */
#ifndef DSMOE_TRAIN_HALVES_H
#define DSMOE_TRAIN_HALVES_H

#include "kernels/kernels.h"

/* Some memory of a layer, a multiple of a cache line: floats that are rounded, or data that is stored
 * unchanged. */
typedef struct kept_piece {
    void *at;
    size_t size;
    bool is_rounded;
} kept_piece;

enum { KEPT_PIECES = 4 };

/* Bytes to store all pieces of a layer: rounded pieces take half of their size. */
size_t halves_size(const kept_piece pieces[KEPT_PIECES]);
/* Copies pieces into a store; NULL: rounds them in place. Numbers beyond the range of float16 become its
 * largest. */
void halves_keep(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads);
/* Copies the pieces back. */
void halves_take(const kernels *kn, const kept_piece pieces[KEPT_PIECES], void *store,
                 int n_threads);

#endif

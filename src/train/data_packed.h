/* data_packed.h - packs documents of a cache into sequences, several in each.
 *
 * A conversation of n tokens takes n - 1 places: its last token is only a target. A conversation that does
 * not fit into a sequence is cut or left out; a text is learned in as many parts as it takes. A preference
 * takes the places of both its conversations; if these are too many, the longer one is cut first. */
#ifndef DSMOE_TRAIN_DATA_PACKED_H
#define DSMOE_TRAIN_DATA_PACKED_H

#include "train/data_cache.h"
#include "train/pack.h"

/* Tokens begin … begin + n - 1; the token after each may be its target. For a preference this is the
 * chosen conversation, followed in the same sequence by the rejected one. */
typedef struct data_item {
    uint32_t begin, n;
    uint32_t other_begin, other_n; /* 0: no preference, or its halves are separate */
} data_item;

typedef struct data_packed {
    const data_cache *cache;
    int64_t length; /* of a sequence */
    data_item *items;
    size_t n_items;
    packing packing;
    uint32_t *n_targets, *n_tokens; /* [packing.n_sequences] */
    int64_t n_cut, n_dropped;       /* conversations that were too long */
} data_packed;

typedef struct data_packed_options {
    int64_t first, end; /* the tokens [first, end) of the cache */
    int64_t length;
    bool drops; /* leave out what is too long instead of cutting it */
    bool alone; /* each document has a sequence of its own */
    /* The halves of a preference are separate sequences, one after the other; needs `alone`. */
    bool apart;
} data_packed_options;

dsmoe_status data_packed_make(const data_cache *cache, const data_packed_options *options,
                              data_packed *packed, dsmoe_error *error);
void data_packed_free(data_packed *packed); /* a zeroed struct is allowed */

/* Fills the arrays of a sequence, [length] each, as in dsmoe_batch; positions may be NULL. */
void data_packed_read(const data_packed *packed, int64_t sequence, int32_t *tokens,
                      int32_t *targets, int32_t *positions);

#endif

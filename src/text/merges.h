/* merges.h - the merges of a BPE model: which neighbours become one token, and which first. */
#ifndef DSMOE_TEXT_MERGES_H
#define DSMOE_TEXT_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    MERGES_MAX = 1 << 22,
    MERGES_NO_RANK = INT32_MAX, /* of a pair that does not merge */
};

typedef struct merges_slot {
    uint64_t pair; /* left id, right id */
    int32_t rank;
} merges_slot;

typedef struct merges {
    int32_t *merged; /* the token that the merge of a rank makes */
    size_t count, capacity;
    merges_slot *slots; /* open addressing over a power of two */
    size_t n_slots;
} merges;

dsmoe_status merges_init(merges *m, size_t n_merges, dsmoe_error *error);
/* Allowed on a zeroed table. */
void merges_free(merges *m);

/* Adds the next merge, at most n_merges in all. False if the pair has one already. */
bool merges_add(merges *m, int32_t left, int32_t right, int32_t merged);
/* The rank of a pair: lower ranks merge first. */
int32_t merges_rank(const merges *m, int32_t left, int32_t right);

#endif

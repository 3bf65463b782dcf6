/* train_pairs.h - neighbours in the words of a text: how often each pair occurs and in which words,
 * and which pair occurs most. */
#ifndef DSMOE_TEXT_TRAIN_PAIRS_H
#define DSMOE_TEXT_TRAIN_PAIRS_H

#include <stdbool.h>

#include "text/train_slots.h"

/* A pair that occurs once is not worth a token. */
enum { TRAIN_PAIR_MIN = 2 };

typedef struct train_pair {
    int32_t left, right;
    int64_t count;  /* occurrences in the text */
    size_t first;   /* of its words in `lists` */
    uint32_t room;  /* in the list */
    uint32_t words; /* listed so far */
} train_pair;

typedef struct train_heap_entry {
    int64_t count; /* what it was when it was put there: the pair has no more than that now */
    uint32_t pair;
} train_heap_entry;

typedef struct train_pairs {
    train_pair *pairs;
    size_t count, capacity;
    train_slots slots;
    uint32_t *lists; /* words, pair by pair */
    size_t n_listed, list_capacity;
    train_heap_entry *heap; /* the most frequent first */
    size_t heap_count, heap_capacity;
    size_t n_ready; /* pairs that have their lists and are on the heap */
} train_pairs;

/* Allowed on zeros. */
void train_pairs_free(train_pairs *p);

/* A pair's life: counted while it appears, with the number of places it appears in; then, once
 * train_pairs_settle has made room, its words are listed; from then on it only becomes rarer. */
dsmoe_status train_pairs_add(train_pairs *p, int32_t left, int32_t right, int64_t count,
                             dsmoe_error *error);
dsmoe_status train_pairs_settle(train_pairs *p, dsmoe_error *error);
/* Words come one after the other, so that the same one twice in a row is listed once. Pairs that are
 * too rare to be taken are not listed. */
void train_pairs_list(train_pairs *p, int32_t left, int32_t right, uint32_t word);
void train_pairs_subtract(train_pairs *p, int32_t left, int32_t right, int64_t count);

/* Takes the most frequent pair from the heap; of several the one with the lower left id, then with
 * the lower right id. False if none occurs often enough. */
bool train_pairs_take(train_pairs *p, train_pair *pair);

#endif

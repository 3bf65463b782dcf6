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
    size_t first;   /* where its words begin in `lists` */
    uint32_t room;  /* in the list */
    uint32_t words; /* listed so far */
} train_pair;

typedef struct train_heap_entry {
    int64_t count; /* the pair's count when it was pushed: an upper bound of its count now */
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

/* The life of a pair: train_pairs_add counts it, and the places where it appears. train_pairs_settle makes
 * room for its list of words, which train_pairs_list fills. From then on it only becomes rarer. */
dsmoe_status train_pairs_add(train_pairs *p, int32_t left, int32_t right, int64_t count,
                             dsmoe_error *error);
dsmoe_status train_pairs_settle(train_pairs *p, dsmoe_error *error);
/* The words of a pair must be given in order, so that one with several places is listed once. Pairs that
 * are too rare to be taken are not listed. */
void train_pairs_list(train_pairs *p, int32_t left, int32_t right, uint32_t word);
void train_pairs_subtract(train_pairs *p, int32_t left, int32_t right, int64_t count);

/* Takes the most frequent pair from the heap. Ties go to the lower left id, then to the lower right id.
 * False if no pair occurs often enough. */
bool train_pairs_take(train_pairs *p, train_pair *pair);

#endif

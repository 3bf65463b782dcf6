/* train_pairs.c - neighbours in the words of a text.
 *
 * Two tokens become neighbours only when one of them is made. So all pairs of a new token appear at the
 * same time, and later they can only become rarer. Therefore lists of words are written once, and heap
 * entries may be out of date: the count of an entry is an upper bound, which is corrected when the
 * entry comes to the top. */
#include "text/train_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "text/buffer.h"

void train_pairs_free(train_pairs *p)
{
    free(p->pairs);
    train_slots_free(&p->slots);
    free(p->lists);
    free(p->heap);
    memset(p, 0, sizeof *p);
}

/* ---- finding --------------------------------------------------------------------------------- */

static uint64_t hash_ids(int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return key * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t hash_pair(const void *context, size_t item)
{
    const train_pairs *p = context;
    return hash_ids(p->pairs[item].left, p->pairs[item].right);
}

/* The slot of a pair, or the free one where it belongs. There must be slots. */
static size_t find_slot(const train_pairs *p, int32_t left, int32_t right)
{
    size_t slot = train_slots_first(&p->slots, hash_ids(left, right));
    for (uint32_t item; (item = p->slots.items[slot]); slot = train_slots_next(&p->slots, slot)) {
        const train_pair *pair = &p->pairs[item - 1];
        if (pair->left == left && pair->right == right) break;
    }
    return slot;
}

/* A pair that was added before. */
static train_pair *known_pair(const train_pairs *p, int32_t left, int32_t right)
{
    return &p->pairs[p->slots.items[find_slot(p, left, right)] - 1];
}

/* ---- the heap -------------------------------------------------------------------------------- */

/* Ties go to older tokens, so that the order depends only on the text. */
static bool comes_before(const train_pairs *p, train_heap_entry a, train_heap_entry b)
{
    if (a.count != b.count) return a.count > b.count;
    const train_pair *x = &p->pairs[a.pair], *y = &p->pairs[b.pair];
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static void sift_up(train_pairs *p, size_t at)
{
    train_heap_entry entry = p->heap[at];
    while (at > 0 && comes_before(p, entry, p->heap[(at - 1) / 2])) {
        p->heap[at] = p->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    p->heap[at] = entry;
}

static void sift_down_top(train_pairs *p)
{
    train_heap_entry entry = p->heap[0];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < p->heap_count; at = child) {
        if (child + 1 < p->heap_count && comes_before(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (!comes_before(p, p->heap[child], entry)) break;
        p->heap[at] = p->heap[child];
    }
    p->heap[at] = entry;
}

bool train_pairs_take(train_pairs *p, train_pair *pair)
{
    while (p->heap_count > 0) {
        train_heap_entry top = p->heap[0];
        *pair = p->pairs[top.pair];
        bool enough = pair->count >= TRAIN_PAIR_MIN, exact = pair->count == top.count;
        if (enough && !exact)
            p->heap[0].count = pair->count;
        else
            p->heap[0] = p->heap[--p->heap_count];
        if (p->heap_count > 0) sift_down_top(p);
        if (enough && exact) return true;
    }
    return false;
}

/* ---- counting and listing -------------------------------------------------------------------- */

dsmoe_status train_pairs_add(train_pairs *p, int32_t left, int32_t right, int64_t count,
                             dsmoe_error *error)
{
    STATUS_TRY(train_slots_reserve(&p->slots, p->count, hash_pair, p, error));
    size_t slot = find_slot(p, left, right);
    if (!p->slots.items[slot]) {
        void *memory = p->pairs;
        STATUS_TRY(buffer_grow(&memory, &p->capacity, p->count + 1, sizeof *p->pairs, error));
        p->pairs = memory;
        p->pairs[p->count++] = (train_pair){.left = left, .right = right};
        p->slots.items[slot] = (uint32_t)p->count;
    }
    train_pair *pair = &p->pairs[p->slots.items[slot] - 1];
    pair->count += count;
    pair->room++;
    return DSMOE_OK;
}

dsmoe_status train_pairs_settle(train_pairs *p, dsmoe_error *error)
{
    size_t needed = p->n_listed, n_frequent = p->heap_count;
    for (size_t i = p->n_ready; i < p->count; i++) {
        train_pair *pair = &p->pairs[i];
        if (pair->count < TRAIN_PAIR_MIN) pair->room = 0;
        pair->first = needed;
        needed += pair->room;
        n_frequent += pair->room > 0;
    }
    void *lists = p->lists, *heap = p->heap;
    STATUS_TRY(buffer_grow(&lists, &p->list_capacity, needed, sizeof *p->lists, error));
    p->lists = lists;
    STATUS_TRY(buffer_grow(&heap, &p->heap_capacity, n_frequent, sizeof *p->heap, error));
    p->heap = heap;
    p->n_listed = needed;
    for (; p->n_ready < p->count; p->n_ready++) {
        const train_pair *pair = &p->pairs[p->n_ready];
        if (pair->room == 0) continue;
        p->heap[p->heap_count++] = (train_heap_entry){pair->count, (uint32_t)p->n_ready};
        sift_up(p, p->heap_count - 1);
    }
    return DSMOE_OK;
}

void train_pairs_list(train_pairs *p, int32_t left, int32_t right, uint32_t word)
{
    train_pair *pair = known_pair(p, left, right);
    if (pair->room == 0) return;
    uint32_t *list = p->lists + pair->first;
    if (pair->words == 0 || list[pair->words - 1] != word) list[pair->words++] = word;
}

void train_pairs_subtract(train_pairs *p, int32_t left, int32_t right, int64_t count)
{
    known_pair(p, left, right)->count -= count;
}

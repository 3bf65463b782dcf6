/* pack.c - which conversations share a sequence. */
#include "train/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static const uint32_t nobody = UINT32_MAX;

/* Sequences being filled. Sequences with the same room left form a chain, and so do the items of a
 * sequence. */
typedef struct packer {
    const uint32_t *lengths;
    size_t n;
    uint32_t room;
    size_t n_sequences;
    uint32_t *by_room;     /* [room + 1] the last sequence that has this room left */
    uint64_t *has_room;    /* a bit for each chain, set if it is not empty */
    uint32_t *next;        /* [n] for a sequence: the next one in its chain */
    uint32_t *last_item;   /* [n] for a sequence: its last item */
    uint32_t *item_before; /* [n] for an item: the one before it in its sequence */
    uint32_t *sorted;      /* [n] */
} packer;

static bool allocate(packer *p)
{
    size_t size = 0;
    if (!checked_mul_size(p->n + 1, sizeof(uint32_t), &size)) return false;
    p->by_room = malloc(((size_t)p->room + 2) * sizeof *p->by_room);
    p->has_room = calloc((size_t)p->room / 64 + 1, sizeof *p->has_room);
    p->next = malloc(size);
    p->last_item = malloc(size);
    p->item_before = malloc(size);
    p->sorted = malloc(size);
    return p->by_room && p->has_room && p->next && p->last_item && p->item_before && p->sorted;
}

static void release(packer *p)
{
    free(p->by_room);
    free(p->has_room);
    free(p->next);
    free(p->last_item);
    free(p->item_before);
    free(p->sorted);
}

/* Sorts by falling length; items of one length keep their order. */
static void sort(packer *p)
{
    uint32_t *begin = p->by_room; /* not yet in use */
    memset(begin, 0, ((size_t)p->room + 2) * sizeof *begin);
    for (size_t i = 0; i < p->n; i++) begin[p->room - p->lengths[i] + 1]++;
    for (uint32_t i = 0; i <= p->room; i++) begin[i + 1] += begin[i];
    for (size_t i = 0; i < p->n; i++) p->sorted[begin[p->room - p->lengths[i]]++] = (uint32_t)i;
    for (uint32_t i = 0; i <= p->room; i++) p->by_room[i] = nobody;
}

/* The smallest room of a sequence that is at least `length`; `nobody` if there is none. */
static uint32_t find_room(const packer *p, uint32_t length)
{
    size_t word = length / 64, n_words = (size_t)p->room / 64 + 1;
    uint64_t bits = p->has_room[word] & ~(uint64_t)0 << length % 64;
    while (bits == 0 && ++word < n_words) bits = p->has_room[word];
    return bits ? (uint32_t)(word * 64 + (size_t)__builtin_ctzll(bits)) : nobody;
}

static void put(packer *p, uint32_t sequence, uint32_t room)
{
    p->next[sequence] = p->by_room[room];
    p->by_room[room] = sequence;
    p->has_room[room / 64] |= (uint64_t)1 << room % 64;
}

static uint32_t take(packer *p, uint32_t room)
{
    uint32_t sequence = p->by_room[room];
    p->by_room[room] = p->next[sequence];
    if (p->by_room[room] == nobody) p->has_room[room / 64] &= ~((uint64_t)1 << room % 64);
    return sequence;
}

static void fill(packer *p)
{
    for (size_t i = 0; i < p->n; i++) {
        uint32_t item = p->sorted[i], length = p->lengths[item], room = find_room(p, length);
        bool is_new = room == nobody;
        uint32_t sequence = is_new ? (uint32_t)p->n_sequences++ : take(p, room);
        p->item_before[item] = is_new ? nobody : p->last_item[sequence];
        p->last_item[sequence] = item;
        put(p, sequence, (is_new ? p->room : room) - length);
    }
}

/* Turns the chains into lists, in the order in which items were added. */
static void list(const packer *p, packing *out)
{
    uint32_t end = 0;
    for (size_t s = 0; s < p->n_sequences; s++) {
        out->first[s] = end;
        for (uint32_t i = p->last_item[s]; i != nobody; i = p->item_before[i]) end++;
        uint32_t at = end;
        for (uint32_t i = p->last_item[s]; i != nobody; i = p->item_before[i]) out->items[--at] = i;
    }
    out->first[p->n_sequences] = end;
    out->n_sequences = p->n_sequences;
}

static void list_alone(size_t n, packing *out)
{
    for (size_t i = 0; i <= n; i++) out->first[i] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) out->items[i] = (uint32_t)i;
    out->n_sequences = n;
}

dsmoe_status pack_items(const uint32_t *lengths, size_t n, uint32_t room, bool alone, packing *out,
                        dsmoe_error *error)
{
    packer p = {.lengths = lengths, .n = n, .room = room};
    size_t size;
    assert(n < nobody);
    *out = (packing){0};
    if (checked_mul_size(n + 1, sizeof(uint32_t), &size)) {
        out->items = malloc(size);
        out->first = malloc(size);
    }
    bool complete = out->items && out->first && (alone || allocate(&p));
    if (complete && alone) list_alone(n, out);
    if (complete && !alone) {
        sort(&p);
        fill(&p);
        list(&p, out);
    }
    release(&p);
    if (complete) return DSMOE_OK;
    packing_free(out);
    return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu conversations", n);
}

void packing_free(packing *out)
{
    free(out->items);
    free(out->first);
    *out = (packing){0};
}

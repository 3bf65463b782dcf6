/* merges.c - the merges of a BPE model. */
#include "text/merges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t FREE = UINT64_MAX; /* no pair has this value, since ids are not negative */

dsmoe_status merges_init(merges *m, size_t n_merges, dsmoe_error *error)
{
    if (n_merges > MERGES_MAX)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%zu merges, at most %d are expected",
                           n_merges, MERGES_MAX);
    size_t n_slots = 16;
    while (n_slots < 2 * n_merges) n_slots *= 2;
    m->merged = malloc((n_merges + 1) * sizeof *m->merged);
    m->slots = malloc(n_slots * sizeof *m->slots);
    if (!m->merged || !m->slots)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu merges", n_merges);
    for (size_t i = 0; i < n_slots; i++)
        m->slots[i] = (merges_slot){.pair = FREE, .rank = MERGES_NO_RANK};
    m->capacity = n_merges;
    m->n_slots = n_slots;
    return DSMOE_OK;
}

void merges_free(merges *m)
{
    free(m->merged);
    free(m->slots);
    memset(m, 0, sizeof *m);
}

static merges_slot *find_slot(const merges *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t mask = m->n_slots - 1;
    uint64_t hash = pair * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t at = (hash ^ hash >> 32) & mask;; at = (at + 1) & mask)
        if (m->slots[at].pair == pair || m->slots[at].pair == FREE) return &m->slots[at];
}

bool merges_add(merges *m, int32_t left, int32_t right, int32_t merged)
{
    assert(m->count < m->capacity);
    merges_slot *slot = find_slot(m, left, right);
    if (slot->pair != FREE) return false;
    slot->pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    slot->rank = (int32_t)m->count;
    m->merged[m->count++] = merged;
    return true;
}

int32_t merges_rank(const merges *m, int32_t left, int32_t right)
{
    return find_slot(m, left, right)->rank;
}

/* file_set.c - a hash table of files and folders with open addressing. */
#include "formats/file_set.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/hash.h"

/* The slot that holds an identity, or the free slot where it belongs. */
static size_t find_slot(const file_identity *slots, size_t n_slots, uint64_t device,
                        uint64_t number)
{
    const uint64_t parts[2] = {device, number};
    size_t at = (size_t)hash_bytes(parts, sizeof parts, 0) & (n_slots - 1);
    while (slots[at].used && (slots[at].device != device || slots[at].number != number))
        at = (at + 1) & (n_slots - 1);
    return at;
}

static bool grow(file_set *set)
{
    size_t n_slots = 64;
    if (set->n_slots && !checked_mul_size(set->n_slots, 2, &n_slots)) return false;
    file_identity *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < set->n_slots; i++) {
        const file_identity *old = &set->slots[i];
        if (old->used) slots[find_slot(slots, n_slots, old->device, old->number)] = *old;
    }
    free(set->slots);
    set->slots = slots;
    set->n_slots = n_slots;
    return true;
}

bool file_set_add(file_set *set, const struct stat *info, bool *added)
{
    if (2 * set->count >= set->n_slots && !grow(set)) return false;
    uint64_t device = (uint64_t)info->st_dev, number = (uint64_t)info->st_ino;
    size_t at = find_slot(set->slots, set->n_slots, device, number);
    *added = !set->slots[at].used;
    set->slots[at] = (file_identity){.device = device, .number = number, .used = true};
    set->count += *added;
    return true;
}

void file_set_free(file_set *set)
{
    free(set->slots);
    *set = (file_set){0};
}

/* hash.c - the only file that uses libxxhash. Its functions are compiled into this file, so there is nothing
 * to link with, and the state has the size that hash.h declares. */
#include "base/hash.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH64_state_t) == sizeof((hash_state){0}.xxh64), "hash.h gives it this room");

/* hash.h cannot name the type of the state, so its 88 bytes are copied to and from the type in each call. */
static XXH64_state_t load(const hash_state *h)
{
    XXH64_state_t state;
    memcpy(&state, h->xxh64, sizeof state);
    return state;
}

static void store(hash_state *h, XXH64_state_t state) { memcpy(h->xxh64, &state, sizeof state); }

void hash_begin_as(hash_state *h, hash_kind kind, uint64_t seed)
{
    *h = (hash_state){.kind = kind};
    if (kind == HASH_OLD) {
        hash_old_begin(&h->old, seed);
        return;
    }
    XXH64_state_t state = {0};
    XXH64_reset(&state, seed);
    store(h, state);
}

void hash_begin(hash_state *h, uint64_t seed) { hash_begin_as(h, HASH_XXH64, seed); }

void hash_add(hash_state *h, const void *bytes, size_t size)
{
    if (size == 0) return;
    if (h->kind == HASH_OLD) {
        hash_old_add(&h->old, bytes, size);
        return;
    }
    XXH64_state_t state = load(h);
    XXH64_update(&state, bytes, size);
    store(h, state);
}

void hash_add_number(hash_state *h, uint64_t number) { hash_add(h, &number, sizeof number); }

uint64_t hash_end(const hash_state *h)
{
    if (h->kind == HASH_OLD) return hash_old_end(&h->old);
    XXH64_state_t state = load(h);
    return XXH64_digest(&state);
}

uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed)
{
    return XXH64(bytes, size, seed);
}

uint64_t hash_bytes_as(hash_kind kind, const void *bytes, size_t size, uint64_t seed)
{
    hash_state h;
    hash_begin_as(&h, kind, seed);
    hash_add(&h, bytes, size);
    return hash_end(&h);
}

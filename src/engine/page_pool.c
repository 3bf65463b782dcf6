/* page_pool.c - the pages of an engine.
 *
 * Unused pages are a list from the oldest to the newest. Pages that are not known come first, since nothing
 * is lost with them. */
#include "engine/page_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { NONE = -1 };

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t bucket_count(int64_t n_pages)
{
    int64_t n = 16;
    while (n < 2 * n_pages) n *= 2;
    return n;
}

size_t page_pool_size(int64_t n_pages)
{
    return (size_t)n_pages * sizeof(page_state) + (size_t)bucket_count(n_pages) * sizeof(int32_t);
}

static void list_append(page_pool *pool, int32_t page);

bool page_pool_open(page_pool *pool, const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages)
{
    *pool = (page_pool){.n_buckets = bucket_count(n_pages), .oldest = NONE, .newest = NONE};
    pool->states = calloc((size_t)n_pages, sizeof *pool->states);
    pool->buckets = calloc((size_t)pool->n_buckets, sizeof *pool->buckets);
    if (!pool->states || !pool->buckets || !kv_pages_open(&pool->pages, config, type, n_pages))
        return false;
    for (int64_t i = 0; i < pool->n_buckets; i++) pool->buckets[i] = NONE;
    for (int32_t i = 0; i < n_pages; i++) list_append(pool, i);
    return true;
}

void page_pool_close(page_pool *pool)
{
    kv_pages_close(&pool->pages);
    free(pool->states);
    free(pool->buckets);
    *pool = (page_pool){0};
}

/* ---- unused pages ----------------------------------------------------------------------------- */

static void link_pages(page_pool *pool, int32_t older, int32_t newer)
{
    if (older == NONE)
        pool->oldest = newer;
    else
        pool->states[older].newer = newer;
    if (newer == NONE)
        pool->newest = older;
    else
        pool->states[newer].older = older;
}

static void list_append(page_pool *pool, int32_t page)
{
    link_pages(pool, pool->newest, page);
    link_pages(pool, page, NONE);
    pool->n_unused++;
}

static void list_prepend(page_pool *pool, int32_t page)
{
    link_pages(pool, page, pool->oldest);
    link_pages(pool, NONE, page);
    pool->n_unused++;
}

static void list_remove(page_pool *pool, int32_t page)
{
    link_pages(pool, pool->states[page].older, pool->states[page].newer);
    pool->n_unused--;
}

/* ---- users ------------------------------------------------------------------------------------- */

int32_t page_pool_take(page_pool *pool)
{
    int32_t page = pool->oldest;
    if (page == NONE) return NONE;
    page_pool_share(pool, page);
    page_pool_forget(pool, page);
    return page;
}

void page_pool_share(page_pool *pool, int32_t page)
{
    page_state *s = &pool->states[page];
    if (s->n_users == 0) {
        list_remove(pool, page);
        pool->n_known_unused -= s->id != PAGE_ID_NONE;
    }
    pool->n_shared += ++s->n_users == 2;
}

void page_pool_give_back(page_pool *pool, int32_t page)
{
    page_state *s = &pool->states[page];
    assert(s->n_users > 0);
    pool->n_shared -= --s->n_users == 1;
    if (s->n_users > 0) return;
    pool->n_known_unused += s->id != PAGE_ID_NONE;
    if (s->id != PAGE_ID_NONE)
        list_append(pool, page);
    else
        list_prepend(pool, page);
}

/* ---- what pages hold --------------------------------------------------------------------------- */

static int32_t *bucket_of(const page_pool *pool, page_id before, const int32_t *tokens)
{
    uint64_t hash = hash_bytes(tokens, KV_PAGE * sizeof *tokens, before);
    return &pool->buckets[hash & (uint64_t)(pool->n_buckets - 1)];
}

int32_t page_pool_find(const page_pool *pool, page_id before, const int32_t *tokens)
{
    int32_t page = *bucket_of(pool, before, tokens);
    for (; page != NONE; page = pool->states[page].next_alike) {
        const page_state *s = &pool->states[page];
        if (s->before == before && !memcmp(s->tokens, tokens, sizeof s->tokens)) return page;
    }
    return NONE;
}

page_id page_pool_know(page_pool *pool, int32_t page, page_id before, const int32_t *tokens)
{
    page_state *s = &pool->states[page];
    int32_t equal = page_pool_find(pool, before, tokens);
    if (equal != NONE) return pool->states[equal].id;
    int32_t *bucket = bucket_of(pool, before, tokens);
    s->id = ++pool->last_id;
    s->before = before;
    memcpy(s->tokens, tokens, sizeof s->tokens);
    s->next_alike = *bucket;
    *bucket = page;
    return s->id;
}

void page_pool_forget(page_pool *pool, int32_t page)
{
    page_state *s = &pool->states[page];
    if (s->id == PAGE_ID_NONE) return;
    int32_t *at = bucket_of(pool, s->before, s->tokens);
    while (*at != page) at = &pool->states[*at].next_alike;
    *at = s->next_alike;
    s->id = PAGE_ID_NONE;
}

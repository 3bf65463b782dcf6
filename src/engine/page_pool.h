/* page_pool.h - the pages of an engine: which are in use, and what the unused ones hold.
 *
 * A page that is given back stays as it is until its room is needed, the oldest first. If it was full, it is known by
 * its tokens and by the page before it, so that a new sequence that begins alike can take it up again. Known by all of
 * that, not by a hash of it: so no sequence is given the keys and values of another text. */
#ifndef DSMOE_ENGINE_PAGE_POOL_H
#define DSMOE_ENGINE_PAGE_POOL_H

#include "model/kv_cache.h"

/* What identifies the content of a full page, its place in the text included: a number that is never used again. */
typedef uint64_t page_id;
enum { PAGE_ID_NONE = 0 }; /* before the first page of a text */

typedef struct page_state {
    int32_t n_users;
    int32_t older, newer; /* among the unused ones; -1: none */
    int32_t next_alike;   /* of the same bucket; -1: none */
    page_id id, before;   /* id PAGE_ID_NONE: not known */
    int32_t tokens[KV_PAGE];
} page_state;

typedef struct page_pool {
    kv_pages pages;
    page_state *states; /* [n_pages] */
    int32_t *buckets;   /* [n_buckets] the first known page of each; -1: none */
    int64_t n_buckets;  /* a power of two */
    int32_t oldest, newest;
    int64_t n_unused; /* known ones among them, and those that are shared: */
    int64_t n_known_unused, n_shared;
    page_id last_id;
} page_pool;

/* False without memory. */
bool page_pool_open(page_pool *pool, const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages);
void page_pool_close(page_pool *pool);
/* Bytes of all that beside the pages. */
size_t page_pool_size(int64_t n_pages);

/* A page with one user and nothing in it; -1 if all are in use. */
int32_t page_pool_take(page_pool *pool);
/* One user more, or one fewer. */
void page_pool_share(page_pool *pool, int32_t page);
void page_pool_give_back(page_pool *pool, int32_t page);

/* A full page becomes known. Returns its id, or that of another page with the same content. */
page_id page_pool_know(page_pool *pool, int32_t page, page_id before, const int32_t *tokens);
/* The page's only user is about to write to it. */
void page_pool_forget(page_pool *pool, int32_t page);
/* The known page with these KV_PAGE tokens after page `before`; -1: there is none. */
int32_t page_pool_find(const page_pool *pool, page_id before, const int32_t *tokens);

#endif

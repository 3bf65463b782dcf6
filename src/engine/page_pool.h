/* page_pool.h - the pages of an engine: which are in use, and what the unused ones hold.
 *
 * A page that is given back keeps its content until the page is needed, the oldest page first. A full page is
 * known by its tokens and by the page before it. A new sequence that begins with the same tokens can then use
 * it again. Pages are compared by tokens, not only by a hash, so no sequence gets the keys and values of
 * another text. */
#ifndef DSMOE_ENGINE_PAGE_POOL_H
#define DSMOE_ENGINE_PAGE_POOL_H

#include "model/kv_cache.h"

/* Identifies the content of a full page, including all text before it. A number is never used again. */
typedef uint64_t page_id;
enum { PAGE_ID_NONE = 0 }; /* before the first page of a text */

typedef struct page_state {
    int32_t n_users;
    int32_t older, newer; /* the next older and newer unused pages; -1: none */
    int32_t next_alike;   /* the next page in the same bucket; -1: none */
    page_id id, before;   /* its id (PAGE_ID_NONE: not known), and that of the page before it */
    int32_t tokens[KV_PAGE];
} page_state;

typedef struct page_pool {
    kv_pages pages;
    page_state *states; /* [n_pages] */
    int32_t *buckets;   /* [n_buckets] the first known page of each; -1: none */
    int64_t n_buckets;  /* a power of two */
    int32_t oldest, newest;
    int64_t n_unused;
    int64_t n_known_unused, n_shared; /* unused pages that are known; pages with several users */
    page_id last_id;
} page_pool;

/* False if there is not enough memory. */
bool page_pool_open(page_pool *pool, const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages);
void page_pool_close(page_pool *pool);
/* Bytes of everything except the pages. */
size_t page_pool_size(int64_t n_pages);

/* Takes an unused page, which then has one user and is not known; -1 if all are in use. */
int32_t page_pool_take(page_pool *pool);
/* Adds or removes a user. */
void page_pool_share(page_pool *pool, int32_t page);
void page_pool_give_back(page_pool *pool, int32_t page);

/* Makes a full page known and returns its id. If another page has the same content, returns the id of that
 * page. */
page_id page_pool_know(page_pool *pool, int32_t page, page_id before, const int32_t *tokens);
/* Makes a page unknown, because its only user will write to it. */
void page_pool_forget(page_pool *pool, int32_t page);
/* The known page with these KV_PAGE tokens after page `before`; -1 if there is none. */
int32_t page_pool_find(const page_pool *pool, page_id before, const int32_t *tokens);

#endif

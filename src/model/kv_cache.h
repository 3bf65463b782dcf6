/* kv_cache.h - keys and values of a sequence, layer by layer.
 *
 * A page holds KV_PAGE positions of one layer: for each head its keys, then for each head its
 * values, [KV_PAGE, head_dim] each, in the type of the cache. So what attention reads for a head
 * lies together, and memory becomes real page by page as the sequence grows. Keys are stored turned
 * (rope.h), and in groups that lie column by column (cache_kernels in kernels.h): a group begins
 * where the first of its keys would. */
#ifndef DSMOE_MODEL_KV_CACHE_H
#define DSMOE_MODEL_KV_CACHE_H

#include "base/dtype.h"
#include "base/status.h"

/* Large enough to be read in long streams, small enough that short sequences stay small. */
enum { KV_PAGE = 128 };

typedef struct kv_cache {
    unsigned char *memory;
    size_t size; /* bytes */
    dsmoe_dtype type;
    int64_t n_pages, n_heads;
    int64_t row; /* bytes of a key or a value: of head_dim numbers */
} kv_cache;

/* Whether keys and values of this model can be kept in this type. */
dsmoe_status kv_cache_check(const dsmoe_config *config, dsmoe_dtype type, dsmoe_error *error);
/* Bytes for that many positions; 0 if they cannot fit. The type has been checked. */
size_t kv_cache_size(const dsmoe_config *config, dsmoe_dtype type, int64_t n_ctx);
/* False if there is no memory. */
bool kv_cache_open(kv_cache *cache, const dsmoe_config *config, dsmoe_dtype type, int64_t n_ctx);
void kv_cache_close(kv_cache *cache);

/* [KV_PAGE, head_dim] of one page. */
static inline unsigned char *kv_cache_keys(const kv_cache *c, int64_t layer, int64_t page,
                                           int64_t head)
{
    return c->memory + ((layer * c->n_pages + page) * 2 * c->n_heads + head) * KV_PAGE * c->row;
}

static inline unsigned char *kv_cache_values(const kv_cache *c, int64_t layer, int64_t page,
                                             int64_t head)
{
    return kv_cache_keys(c, layer, page, c->n_heads + head);
}

#endif

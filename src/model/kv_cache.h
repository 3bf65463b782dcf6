/* kv_cache.h - the memory of keys and values.
 *
 * A page holds KV_PAGE consecutive positions of a sequence, for all layers. A sequence is a table of
 * pages, so that sequences can share a common beginning, and pages that one gives back can be used by any
 * other. In each layer a token has some rows of numbers: a key and a value for each key-value head. The
 * rows of one kind in a page are stored together, [KV_PAGE, width] in the type of the pages, so that
 * attention reads them in one stream. Keys are stored rotated (rope.h), and in groups that are stored
 * column by column (cache_kernels in kernels.h): a group begins where the first of its keys would. With
 * latent attention a token has one row, its latent and the rotated part of its key, which is key and value
 * of all heads: see latent.h. */
#ifndef DSMOE_MODEL_KV_CACHE_H
#define DSMOE_MODEL_KV_CACHE_H

#include "base/dtype.h"
#include "base/status.h"

/* Large enough to be read in long streams, small enough that short sequences stay small and that
 * beginnings of a few dozen tokens can be shared. */
enum { KV_PAGE = 64 };

/* What a layer keeps of a token. */
typedef struct kv_layer {
    int64_t n_rows; /* a key and a value for each key-value head; or one latent */
    int64_t row;    /* bytes of a row */
    size_t offset;  /* of the layer within a page */
} kv_layer;

typedef struct kv_pages {
    unsigned char *memory;
    size_t page_size; /* bytes */
    int64_t n_pages, n_layers;
    dsmoe_dtype type;
    kv_layer *layers; /* [n_layers] */
} kv_pages;

/* Whether keys and values of this model can be kept in this type. */
dsmoe_status kv_pages_check(const dsmoe_config *config, dsmoe_dtype type, dsmoe_error *error);
/* Bytes of n_pages pages; 0 if they cannot fit. The type must have been checked. */
size_t kv_pages_size(const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages);
/* False if out of memory. Only address space is reserved: memory is used as pages are written to. */
bool kv_pages_open(kv_pages *pages, const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages);
void kv_pages_close(kv_pages *pages);

/* Copies the contents of one page to another. */
void kv_pages_copy(const kv_pages *pages, int32_t from, int32_t to);

/* The keys and values of one sequence. */
typedef struct kv_cache {
    const kv_pages *pages;
    const int32_t *table; /* the page of each KV_PAGE positions */
} kv_cache;

/* The rows with index `row` of a layer, [KV_PAGE, width], for the positions of a page. */
static inline unsigned char *kv_cache_rows(const kv_cache *c, int64_t layer, int64_t page,
                                           int64_t row)
{
    const kv_layer *l = &c->pages->layers[layer];
    return c->pages->memory + (size_t)c->table[page] * c->pages->page_size + l->offset +
           row * KV_PAGE * l->row;
}

static inline unsigned char *kv_cache_keys(const kv_cache *c, int64_t layer, int64_t page,
                                           int64_t head)
{
    return kv_cache_rows(c, layer, page, head);
}

static inline unsigned char *kv_cache_values(const kv_cache *c, int64_t layer, int64_t page,
                                             int64_t head)
{
    return kv_cache_rows(c, layer, page, c->pages->layers[layer].n_rows / 2 + head);
}

#endif

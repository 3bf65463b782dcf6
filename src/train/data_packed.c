/* data_packed.c - packs documents of a cache into sequences. */
#include "train/data_packed.h"

#include <stdlib.h>

#include "base/checked.h"

static dsmoe_status no_memory(const data_cache *cache, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", cache->path);
}

/* How many targets n tokens have; the target of a token is the one after it. */
static uint32_t count_range(const data_cache *cache, uint32_t begin, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i <= n; i++) count += data_cache_is_learnt(cache, (int64_t)begin + i);
    return count;
}

static uint32_t count_targets(const data_cache *cache, data_item item)
{
    return count_range(cache, item.begin, item.n) +
           count_range(cache, item.other_begin, item.other_n);
}

/* ---- items --------------------------------------------------------------------------------- */

typedef struct builder {
    data_packed *packed;
    const data_packed_options *options;
    size_t capacity;
} builder;

static dsmoe_status add_item(builder *b, data_item item, dsmoe_error *error)
{
    data_packed *p = b->packed;
    if (p->n_items == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 1024, size;
        data_item *items =
            checked_mul_size(capacity, sizeof *items, &size) ? realloc(p->items, size) : NULL;
        if (!items) return no_memory(p->cache, error);
        p->items = items;
        b->capacity = capacity;
    }
    p->items[p->n_items++] = item;
    return DSMOE_OK;
}

static dsmoe_status add_text(builder *b, uint32_t begin, uint32_t end, dsmoe_error *error)
{
    uint32_t length = (uint32_t)b->options->length;
    while (end - begin > 1) {
        uint32_t left = end - begin - 1, n = left < length ? left : length;
        STATUS_TRY(add_item(b, (data_item){.begin = begin, .n = n}, error));
        begin += n;
    }
    return DSMOE_OK;
}

/* A conversation that is cut may have nothing left to learn; it is dropped. */
static dsmoe_status add_conversation(builder *b, uint32_t begin, uint32_t end, dsmoe_error *error)
{
    uint32_t length = (uint32_t)b->options->length;
    data_item item = {.begin = begin, .n = end - begin - 1};
    bool is_long = item.n > length;
    if (is_long) item.n = length;
    if (is_long && (b->options->drops || count_targets(b->packed->cache, item) == 0)) {
        b->packed->n_dropped++;
        return DSMOE_OK;
    }
    b->packed->n_cut += is_long;
    return item.n > 0 ? add_item(b, item, error) : DSMOE_OK;
}

/* Cuts the longer half first, so that both fit. False if a half would be left without an answer. */
static bool fit_pair(const builder *b, data_item *item)
{
    uint32_t length = (uint32_t)b->options->length, half = length / 2;
    if (item->n > half && item->other_n > half) {
        item->n = half;
        item->other_n = length - half < item->other_n ? length - half : item->other_n;
    } else if (item->n > half) {
        item->n = length - item->other_n;
    } else {
        item->other_n = length - item->n;
    }
    const data_cache *cache = b->packed->cache;
    return count_range(cache, item->begin, item->n) > 0 &&
           count_range(cache, item->other_begin, item->other_n) > 0;
}

static dsmoe_status add_pair(builder *b, data_item item, dsmoe_error *error)
{
    bool is_long = (uint64_t)item.n + item.other_n > (uint64_t)b->options->length;
    if (is_long && (b->options->drops || !fit_pair(b, &item))) {
        b->packed->n_dropped++;
        return DSMOE_OK;
    }
    b->packed->n_cut += is_long;
    if (!b->options->apart) return add_item(b, item, error);
    STATUS_TRY(add_item(b, (data_item){.begin = item.begin, .n = item.n}, error));
    return add_item(b, (data_item){.begin = item.other_begin, .n = item.other_n}, error);
}

static dsmoe_status add_document(builder *b, const data_document *d, uint32_t begin,
                                 dsmoe_error *error)
{
    switch ((data_what)d->what) {
    case DATA_TEXT: return add_text(b, begin, d->end, error);
    case DATA_CONVERSATION: return add_conversation(b, begin, d->end, error);
    case DATA_CHOSEN:
        return add_pair(b,
                        (data_item){.begin = begin,
                                    .n = d->end - begin - 1,
                                    .other_begin = d->end,
                                    .other_n = d[1].end - d->end - 1},
                        error);
    case DATA_REJECTED: break; /* added with the chosen one */
    }
    return DSMOE_OK;
}

static dsmoe_status add_documents(builder *b, dsmoe_error *error)
{
    const data_cache *cache = b->packed->cache;
    uint32_t begin = 0;
    for (size_t i = 0; i < cache->n_cuts; i++) {
        const data_document *d = &cache->documents[i];
        if (begin >= b->options->first && d->end <= b->options->end)
            STATUS_TRY(add_document(b, d, begin, error));
        begin = d->end;
    }
    return DSMOE_OK;
}

/* ---- sequences ----------------------------------------------------------------------------- */

static dsmoe_status pack(data_packed *p, bool alone, dsmoe_error *error)
{
    uint32_t *lengths = malloc((p->n_items + 1) * sizeof *lengths);
    if (!lengths) return no_memory(p->cache, error);
    for (size_t i = 0; i < p->n_items; i++) lengths[i] = p->items[i].n + p->items[i].other_n;
    dsmoe_status status =
        pack_items(lengths, p->n_items, (uint32_t)p->length, alone, &p->packing, error);
    free(lengths);
    return status;
}

static dsmoe_status count(data_packed *p, dsmoe_error *error)
{
    size_t n = p->packing.n_sequences;
    p->n_targets = calloc(n + 1, sizeof *p->n_targets);
    p->n_tokens = calloc(n + 1, sizeof *p->n_tokens);
    if (!p->n_targets || !p->n_tokens) return no_memory(p->cache, error);
    for (size_t s = 0; s < n; s++)
        for (uint32_t i = p->packing.first[s]; i < p->packing.first[s + 1]; i++) {
            data_item item = p->items[p->packing.items[i]];
            p->n_tokens[s] += item.n + item.other_n;
            p->n_targets[s] += count_targets(p->cache, item);
        }
    return DSMOE_OK;
}

dsmoe_status data_packed_make(const data_cache *cache, const data_packed_options *options,
                              data_packed *packed, dsmoe_error *error)
{
    *packed = (data_packed){.cache = cache, .length = options->length};
    builder b = {.packed = packed, .options = options};
    dsmoe_status status = add_documents(&b, error);
    if (status == DSMOE_OK) status = pack(packed, options->alone, error);
    if (status == DSMOE_OK) status = count(packed, error);
    if (status != DSMOE_OK) data_packed_free(packed);
    return status;
}

void data_packed_free(data_packed *packed)
{
    free(packed->items);
    packing_free(&packed->packing);
    free(packed->n_targets);
    free(packed->n_tokens);
    *packed = (data_packed){0};
}

/* Reads some tokens and the tokens after them, into the arrays from `place`; returns the next place. */
static int64_t read_range(const data_packed *p, uint32_t begin, uint32_t n, int64_t place,
                          int32_t *tokens, int32_t *targets, int32_t *positions)
{
    const data_cache *cache = p->cache;
    for (uint32_t j = 0; j < n; j++, place++) {
        size_t at = (size_t)begin + j;
        tokens[place] = (int32_t)token_shard_token(&cache->tokens, at);
        targets[place] = data_cache_is_learnt(cache, (int64_t)at + 1)
                             ? (int32_t)token_shard_token(&cache->tokens, at + 1)
                             : -1;
        if (positions) positions[place] = (int32_t)j;
    }
    return place;
}

void data_packed_read(const data_packed *p, int64_t sequence, int32_t *tokens, int32_t *targets,
                      int32_t *positions)
{
    int64_t place = 0;
    for (uint32_t i = p->packing.first[sequence]; i < p->packing.first[sequence + 1]; i++) {
        data_item item = p->items[p->packing.items[i]];
        place = read_range(p, item.begin, item.n, place, tokens, targets, positions);
        place = read_range(p, item.other_begin, item.other_n, place, tokens, targets, positions);
    }
    for (; place < p->length; place++) {
        tokens[place] = 0;
        targets[place] = -1;
        if (positions) positions[place] = -1;
    }
}

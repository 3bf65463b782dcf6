/* kv_cache.c - memory for keys and values. */
#include "model/kv_cache.h"

#include "base/checked.h"
#include "base/memory.h"
#include "model/config.h"

size_t kv_cache_size(const dsmoe_config *config, int64_t n_ctx)
{
    int64_t head_dim = config_head_dim(config);
    size_t n_pages = ((size_t)n_ctx + KV_PAGE - 1) / KV_PAGE, size;
    size_t page = 2 * (size_t)(config->num_key_value_heads * head_dim) * KV_PAGE * sizeof(float);
    if (!checked_mul_size(n_pages, page, &size) ||
        !checked_mul_size(size, (size_t)config->num_hidden_layers, &size) || size > SIZE_MAX / 4)
        return 0;
    return size;
}

bool kv_cache_open(kv_cache *cache, const dsmoe_config *config, int64_t n_ctx)
{
    *cache = (kv_cache){.size = kv_cache_size(config, n_ctx),
                        .n_pages = (n_ctx + KV_PAGE - 1) / KV_PAGE,
                        .n_heads = config->num_key_value_heads,
                        .head_dim = config_head_dim(config)};
    cache->memory = cache->size ? memory_reserve(cache->size) : NULL;
    return cache->memory != NULL;
}

void kv_cache_close(kv_cache *cache)
{
    memory_release(cache->memory, cache->size);
    *cache = (kv_cache){0};
}

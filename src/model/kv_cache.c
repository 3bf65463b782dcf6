/* kv_cache.c - memory for keys and values. */
#include "model/kv_cache.h"

#include "base/checked.h"
#include "base/memory.h"
#include "model/config.h"

dsmoe_status kv_cache_check(const dsmoe_config *config, dsmoe_dtype type, dsmoe_error *error)
{
    if (type != DSMOE_F32 && type != DSMOE_F16 && type != DSMOE_Q8_0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a KV cache is f32, f16 or q8_0, not %s",
                           dsmoe_dtype_name(type));
    int64_t head_dim = config_head_dim(config);
    if (head_dim % dtype_table[type].block != 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a KV cache in %s needs heads of a multiple of %d numbers, and this "
                           "model's have %lld: take f16",
                           dsmoe_dtype_name(type), dtype_table[type].block, (long long)head_dim);
    return DSMOE_OK;
}

size_t kv_cache_size(const dsmoe_config *config, dsmoe_dtype type, int64_t n_ctx)
{
    size_t n_pages = ((size_t)n_ctx + KV_PAGE - 1) / KV_PAGE, size;
    size_t row = (size_t)dtype_bytes(type, config_head_dim(config));
    size_t page = 2 * (size_t)config->num_key_value_heads * KV_PAGE * row;
    if (!checked_mul_size(n_pages, page, &size) ||
        !checked_mul_size(size, (size_t)config->num_hidden_layers, &size) || size > SIZE_MAX / 4)
        return 0;
    return size;
}

bool kv_cache_open(kv_cache *cache, const dsmoe_config *config, dsmoe_dtype type, int64_t n_ctx)
{
    *cache = (kv_cache){.size = kv_cache_size(config, type, n_ctx),
                        .type = type,
                        .n_pages = (n_ctx + KV_PAGE - 1) / KV_PAGE,
                        .n_heads = config->num_key_value_heads,
                        .row = dtype_bytes(type, config_head_dim(config))};
    cache->memory = cache->size ? memory_reserve(cache->size) : NULL;
    return cache->memory != NULL;
}

void kv_cache_close(kv_cache *cache)
{
    memory_release(cache->memory, cache->size);
    *cache = (kv_cache){0};
}

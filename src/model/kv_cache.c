/* kv_cache.c - memory for keys and values. */
#include "model/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "model/config.h"

dsmoe_status kv_pages_check(const dsmoe_config *config, dsmoe_dtype type, dsmoe_error *error)
{
    if (type != DSMOE_F32 && type != DSMOE_F16 && type != DSMOE_Q8_0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a KV cache is f32, f16 or q8_0, not %s",
                           dsmoe_dtype_name(type));
    int64_t head_dim = config_head_dim(config), block = dtype_table[type].block;
    if (config_is_latent(config)) {
        if (config->kv_lora_rank % block == 0 && config->qk_rope_head_dim % block == 0)
            return DSMOE_OK;
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a KV cache in %s needs a kv_lora_rank and a qk_rope_head_dim that are "
                           "multiples of %lld, but this model's are %lld and %lld: use f16",
                           dsmoe_dtype_name(type), (long long)block,
                           (long long)config->kv_lora_rank, (long long)config->qk_rope_head_dim);
    }
    if (head_dim % block != 0)
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "a KV cache in %s needs a head size that is a multiple of %lld, but this "
            "model's heads have %lld numbers: use f16",
            dsmoe_dtype_name(type), (long long)block, (long long)head_dim);
    return DSMOE_OK;
}

/* What a layer keeps of a token. The caller sets the offset. */
static kv_layer layer_of(const dsmoe_config *config, dsmoe_dtype type, int64_t layer)
{
    (void)layer; /* all layers have the same heads */
    if (config_is_latent(config)) {
        int64_t width = config->kv_lora_rank + config->qk_rope_head_dim;
        return (kv_layer){.n_rows = 1, .row = dtype_bytes(type, width)};
    }
    return (kv_layer){.n_rows = 2 * config->num_key_value_heads,
                      .row = dtype_bytes(type, config_head_dim(config))};
}

/* Bytes of a page; 0 if they cannot fit. `layers` may be NULL. */
static size_t page_place(const dsmoe_config *config, dsmoe_dtype type, kv_layer *layers)
{
    size_t size = 0;
    for (int64_t i = 0; i < config->num_hidden_layers; i++) {
        kv_layer layer = layer_of(config, type, i);
        size_t bytes;
        layer.offset = size;
        if (!checked_mul_size((size_t)layer.n_rows * KV_PAGE, (size_t)layer.row, &bytes) ||
            !checked_add_size(size, bytes, &size))
            return 0;
        if (layers) layers[i] = layer;
    }
    return size;
}

size_t kv_pages_size(const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages)
{
    size_t size;
    if (!checked_mul_size((size_t)n_pages, page_place(config, type, NULL), &size) ||
        size > SIZE_MAX / 4)
        return 0;
    return size;
}

bool kv_pages_open(kv_pages *pages, const dsmoe_config *config, dsmoe_dtype type, int64_t n_pages)
{
    int64_t n_layers = config->num_hidden_layers;
    *pages = (kv_pages){.n_pages = n_pages, .n_layers = n_layers, .type = type};
    pages->layers = calloc((size_t)n_layers, sizeof *pages->layers);
    if (!pages->layers) return false;
    pages->page_size = page_place(config, type, pages->layers);
    size_t size = kv_pages_size(config, type, n_pages);
    pages->memory = size ? memory_reserve(size) : NULL;
    return pages->memory != NULL;
}

void kv_pages_close(kv_pages *pages)
{
    memory_release(pages->memory, pages->page_size * (size_t)pages->n_pages);
    free(pages->layers);
    *pages = (kv_pages){0};
}

void kv_pages_copy(const kv_pages *pages, int32_t from, int32_t to)
{
    memcpy(pages->memory + (size_t)to * pages->page_size,
           pages->memory + (size_t)from * pages->page_size, pages->page_size);
}

/* fuzz_data_cache.c - any bytes as a cache of tokens: refused, or every token and its kind can be read.
 * Real hashes would refuse nearly every input before it is read, so here every hash is 0. */
#include "fuzz.h"

#include <string.h>

#include "train/data_cache.h"

uint64_t __wrap_hash_bytes_as(hash_kind kind, const void *bytes, size_t size, uint64_t seed);
uint64_t __wrap_hash_bytes_as(hash_kind kind, const void *bytes, size_t size, uint64_t seed)
{
    (void)kind;
    (void)seed;
    unsigned sum = 0; /* reads what would be hashed: it must be inside the input */
    for (size_t i = 0; i < size; i++) sum += ((const unsigned char *)bytes)[i];
    __asm__ volatile("" : : "r"(sum));
    return 0;
}

static int64_t token_at(const token_shard *tokens, size_t index)
{
    uint32_t token = 0; /* little-endian, as in the file */
    memcpy(&token, tokens->tokens + index * (size_t)tokens->token_size, (size_t)tokens->token_size);
    return token;
}

static void use_cache(const data_cache *cache)
{
    require(cache->vocab_size >= 1 && cache->tokens.n_tokens >= 1);
    require(cache->held_out >= 0 && cache->held_out < 1);
    require(cache->n_train >= 0 && (size_t)cache->n_train <= cache->tokens.n_tokens);
    require(cache->n_documents >= 0 && cache->n_bytes >= 0);
    require(cache->n_kinds >= 1 && cache->n_kinds <= DOCUMENT_MAX_KINDS);
    for (int i = 0; i < cache->n_kinds; i++) require(cache->kinds[i] != NULL);
    for (size_t i = 0; i < cache->tokens.n_tokens; i++) {
        int kind = data_cache_kind(cache, (int64_t)i);
        require(kind >= 0 && kind < cache->n_kinds);
        require(token_at(&cache->tokens, i) < cache->vocab_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    data_cache cache;
    dsmoe_error error = {0};
    dsmoe_status status = data_cache_parse(bytes, size, "fuzz", &cache, &error);
    if (status == DSMOE_OK)
        use_cache(&cache);
    else
        require_error(status, &error);
    data_cache_close(&cache);
    return 0;
}

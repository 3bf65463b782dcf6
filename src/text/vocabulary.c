/* vocabulary.c - tokens by id and ids by bytes. */
#include "text/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "text/byte_map.h"

enum { TOKEN_MAX_LENGTH = 4096 }; /* bytes; the longest public ones have a few hundred */

dsmoe_status vocabulary_init(vocabulary *v, size_t n_tokens, dsmoe_error *error)
{
    memset(v->byte_ids, 0xff, sizeof v->byte_ids);
    size_t n_slots = 16, doubled;
    if (!checked_mul_size(n_tokens, 2, &doubled) || n_tokens > VOCABULARY_MAX_IDS)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%zu tokens, at most %d are expected",
                           n_tokens, VOCABULARY_MAX_IDS);
    while (n_slots < doubled) n_slots *= 2;
    v->slots = malloc(n_slots * sizeof *v->slots);
    if (!v->slots)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu tokens", n_tokens);
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
    v->n_slots = n_slots;
    return DSMOE_OK;
}

void vocabulary_free(vocabulary *v)
{
    free(v->tokens);
    free(v->slots);
    byte_buffer_free(&v->text);
    memset(v, 0, sizeof *v);
}

const vocabulary_token *vocabulary_token_at(const vocabulary *v, int64_t id)
{
    if (id < 0 || (uint64_t)id >= v->n_ids || !v->tokens[id].present) return NULL;
    return &v->tokens[id];
}

const char *vocabulary_piece(const vocabulary *v, int64_t id, size_t *length)
{
    const vocabulary_token *token = vocabulary_token_at(v, id);
    *length = token ? token->length : 0;
    return token ? v->text.bytes + token->offset : NULL;
}

/* The slot of these bytes, or the free one where they belong. */
static vocabulary_slot *find_slot(const vocabulary *v, const char *bytes, size_t length,
                                  uint32_t hash)
{
    size_t mask = v->n_slots - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        vocabulary_slot *slot = &v->slots[at];
        if (slot->id < 0) return slot;
        if (slot->hash != hash) continue;
        const vocabulary_token *token = &v->tokens[slot->id];
        if (token->length == length && !memcmp(v->text.bytes + token->offset, bytes, length))
            return slot;
    }
}

int32_t vocabulary_find(const vocabulary *v, const char *bytes, size_t length)
{
    return find_slot(v, bytes, length, (uint32_t)hash_bytes(bytes, length, 0))->id;
}

int32_t vocabulary_find_key(const vocabulary *v, const char *key, size_t length)
{
    char bytes[TOKEN_MAX_LENGTH];
    size_t n_bytes;
    if (length > sizeof bytes || !byte_map_decode(key, length, bytes, &n_bytes)) return -1;
    return vocabulary_find(v, bytes, n_bytes);
}

int32_t vocabulary_find_content(const vocabulary *v, const char *content, size_t length)
{
    int32_t found = -1;
    for (size_t id = 0; id < v->n_ids; id++) {
        const vocabulary_token *token = &v->tokens[id];
        if (!token->present || token->length != length ||
            memcmp(v->text.bytes + token->offset, content, length))
            continue;
        if (found < 0 || token->special) found = (int32_t)id;
    }
    return found;
}

/* Grows the table to hold the id, and refuses invalid tokens. */
static dsmoe_status make_room(vocabulary *v, int64_t id, const char *name, size_t length,
                              dsmoe_error *error)
{
    if (length == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "the token of id %" PRId64 " is empty", id);
    if (length > TOKEN_MAX_LENGTH)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has %zu bytes, at most %d are expected", name, length,
                           TOKEN_MAX_LENGTH);
    if (id < 0 || id >= VOCABULARY_MAX_IDS)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has id %" PRId64 ", outside 0 to %d", name, id,
                           VOCABULARY_MAX_IDS - 1);
    size_t n_ids = (size_t)id + 1;
    if (n_ids <= v->n_ids) return DSMOE_OK;
    void *memory = v->tokens;
    STATUS_TRY(buffer_grow(&memory, &v->capacity, n_ids, sizeof *v->tokens, error));
    v->tokens = memory;
    memset(v->tokens + v->n_ids, 0, (n_ids - v->n_ids) * sizeof *v->tokens);
    v->n_ids = n_ids;
    return DSMOE_OK;
}

static dsmoe_status store(vocabulary *v, int64_t id, const char *bytes, size_t length,
                          dsmoe_error *error)
{
    size_t offset = v->text.length;
    STATUS_TRY(byte_buffer_append(&v->text, bytes, length, error));
    v->tokens[id] =
        (vocabulary_token){.offset = offset, .length = (uint32_t)length, .present = true};
    return DSMOE_OK;
}

dsmoe_status vocabulary_add_key(vocabulary *v, int64_t id, const char *key, size_t length,
                                dsmoe_error *error)
{
    STATUS_TRY(make_room(v, id, key, length, error));
    if (v->tokens[id].present)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has id %" PRId64 ", which another token has as well",
                           key, id);
    char bytes[TOKEN_MAX_LENGTH];
    size_t n_bytes;
    if (!byte_map_decode(key, length, bytes, &n_bytes)) return store(v, id, key, length, error);
    uint32_t hash = (uint32_t)hash_bytes(bytes, n_bytes, 0);
    vocabulary_slot *slot = find_slot(v, bytes, n_bytes, hash);
    if (slot->id >= 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has ids %" PRId32 " and %" PRId64, key, slot->id, id);
    STATUS_TRY(store(v, id, bytes, n_bytes, error));
    slot->hash = hash;
    slot->id = (int32_t)id;
    if (n_bytes == 1) v->byte_ids[(unsigned char)bytes[0]] = (int32_t)id;
    return DSMOE_OK;
}

dsmoe_status vocabulary_add_literal(vocabulary *v, int64_t id, const char *content, size_t length,
                                    bool special, dsmoe_error *error)
{
    STATUS_TRY(make_room(v, id, content, length, error));
    int32_t known = vocabulary_find_key(v, content, length);
    if (known >= 0 && known != id)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has id %" PRId64 ", but id %" PRId32
                           " in the vocabulary",
                           content, id, known);
    size_t present;
    const char *piece = vocabulary_piece(v, id, &present);
    bool same = piece && present == length && !memcmp(piece, content, length);
    if (piece && !same)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "token \"%.64s\" has id %" PRId64 ", which another token has as well",
                           content, id);
    if (!piece) STATUS_TRY(store(v, id, content, length, error));
    v->tokens[id].special = special;
    return DSMOE_OK;
}

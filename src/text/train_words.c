/* train_words.c - the different words of a text, and how often each occurs. */
#include "text/train_words.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static uint64_t hash_word(const void *context, size_t item)
{
    const train_words *w = context;
    return w->words[item].hash;
}

/* The slot of a word, or the free one where it belongs. There must be slots. */
static size_t find_slot(const train_words *w, const char *bytes, size_t length, uint32_t hash)
{
    size_t slot = train_slots_first(&w->slots, hash);
    for (uint32_t item; (item = w->slots.items[slot]); slot = train_slots_next(&w->slots, slot)) {
        const train_word *word = &w->words[item - 1];
        if (word->hash == hash && word->length == length &&
            !memcmp(w->text.bytes + word->offset, bytes, length))
            break;
    }
    return slot;
}

static dsmoe_status add_hashed(train_words *w, const char *bytes, size_t length, uint32_t hash,
                               int64_t count, dsmoe_error *error)
{
    STATUS_TRY(train_slots_reserve(&w->slots, w->count, hash_word, w, error));
    size_t slot = find_slot(w, bytes, length, hash);
    if (w->slots.items[slot]) {
        w->words[w->slots.items[slot] - 1].count += count;
        return DSMOE_OK;
    }
    void *memory = w->words;
    STATUS_TRY(buffer_grow(&memory, &w->capacity, w->count + 1, sizeof *w->words, error));
    w->words = memory;
    train_word word = {w->text.length, count, (uint32_t)length, hash};
    STATUS_TRY(byte_buffer_append(&w->text, bytes, length, error));
    w->words[w->count++] = word;
    w->slots.items[slot] = (uint32_t)w->count;
    return DSMOE_OK;
}

dsmoe_status train_words_add(train_words *w, const char *bytes, size_t length, int64_t count,
                             dsmoe_error *error)
{
    return add_hashed(w, bytes, length, (uint32_t)hash_bytes(bytes, length, 0), count, error);
}

dsmoe_status train_words_add_all(train_words *w, const train_words *others, dsmoe_error *error)
{
    for (size_t i = 0; i < others->count; i++) {
        const train_word *word = &others->words[i];
        STATUS_TRY(add_hashed(w, others->text.bytes + word->offset, word->length, word->hash,
                              word->count, error));
    }
    return DSMOE_OK;
}

void train_words_free(train_words *w)
{
    free(w->words);
    byte_buffer_free(&w->text);
    train_slots_free(&w->slots);
    memset(w, 0, sizeof *w);
}

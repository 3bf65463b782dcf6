/* train_words.h - the different words of a text, and how often each occurs. */
#ifndef DSMOE_TEXT_TRAIN_WORDS_H
#define DSMOE_TEXT_TRAIN_WORDS_H

#include "text/buffer.h"
#include "text/train_slots.h"

typedef struct train_word {
    size_t offset; /* into text */
    int64_t count;
    uint32_t length;
    uint32_t hash;
} train_word;

typedef struct train_words {
    train_word *words;
    size_t count, capacity;
    byte_buffer text; /* the bytes of all words, one after the other */
    train_slots slots;
} train_words;

/* Adds to the count of a word, which may be new. */
dsmoe_status train_words_add(train_words *w, const char *bytes, size_t length, int64_t count,
                             dsmoe_error *error);
/* Adds all words of another table. */
dsmoe_status train_words_add_all(train_words *w, const train_words *others, dsmoe_error *error);
/* Allowed on a zeroed table. */
void train_words_free(train_words *w);

#endif

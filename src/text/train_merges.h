/* train_merges.h - learns the tokens of byte pair encoding from counted words. */
#ifndef DSMOE_TEXT_TRAIN_MERGES_H
#define DSMOE_TEXT_TRAIN_MERGES_H

#include "text/train_words.h"

enum { TRAIN_BYTES = 256 }; /* tokens of one byte */

/* A token: a byte, or two earlier tokens joined. */
typedef struct train_token {
    int32_t left, right; /* -1 for a byte */
    size_t offset;       /* into text */
    uint32_t length;
} train_token;

typedef struct train_vocabulary {
    train_token *tokens; /* by id */
    size_t count, capacity;
    byte_buffer text;
    int64_t n_text_tokens; /* length of the text in these tokens */
} train_vocabulary;

/* Allowed on zeros. */
void train_vocabulary_free(train_vocabulary *v);

/* Learns up to `n_tokens` tokens. The bytes come first, in the order of the characters that stand for
 * them in the file, as in other trainers. Then, each time, the most frequent pair of neighbours within a
 * word becomes a token, everywhere and from left to right. Ties go to the lower left id, then to the
 * lower right id. A pair that occurs only once is not merged, so there may be fewer tokens. The words are
 * used up. `progress` counts merges. */
dsmoe_status train_merges(train_words *words, size_t n_tokens, dsmoe_progress_fn *progress,
                          void *context, train_vocabulary *v, dsmoe_error *error);

#endif

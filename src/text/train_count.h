/* train_count.h - from documents to counted words: what a tokenizer learns from. */
#ifndef DSMOE_TEXT_TRAIN_COUNT_H
#define DSMOE_TEXT_TRAIN_COUNT_H

#include "formats/document_split.h"
#include "text/pre_tokenizer.h"
#include "text/train_words.h"

/* A word is a piece of the pre-tokenizer. A longer one counts as several: nothing so long is worth
 * a token, and a megabyte without a space costs no more than any other. */
enum { TRAIN_WORD_MAX = 64 }; /* bytes */

typedef struct train_count_options {
    const pre_tokenizer *pre; /* no piece of it goes beyond a line end */
    double held_out;          /* share of the text that is not looked at (document_split.h) */
    double max_bytes;         /* of text, taken evenly over all of it */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes of the files */
    void *context;
} train_count_options;

/* Adds the words of the documents to `words`; *n_bytes is how much text that was. The counts are the
 * same for any number of threads, the order of the words is not. */
dsmoe_status train_count(const document_list *list, const train_count_options *options,
                         train_words *words, int64_t *n_bytes, dsmoe_error *error);

#endif

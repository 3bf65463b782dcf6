/* train_count.h - counts the words of documents, from which a tokenizer learns. */
#ifndef DSMOE_TEXT_TRAIN_COUNT_H
#define DSMOE_TEXT_TRAIN_COUNT_H

#include "formats/document_split.h"
#include "text/pre_tokenizer.h"
#include "text/train_words.h"

/* A word is a piece of the pre-tokenizer. A longer piece counts as several words: it would not be worth a
 * token, and so a megabyte without a space costs no more than any other. */
enum { TRAIN_WORD_MAX = 64 }; /* bytes */

typedef struct train_count_options {
    const pre_tokenizer *pre; /* none of its pieces crosses a line end */
    double held_out;          /* share of the text that is not used (document_split.h) */
    double max_bytes;         /* of text, sampled evenly from all of it */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes of the files */
    void *context;
} train_count_options;

/* Adds the words of the documents to `words`; *n_bytes is the size of the text used. The counts do not
 * depend on the number of threads, but the order of the words does. */
dsmoe_status train_count(const document_list *list, const train_count_options *options,
                         train_words *words, int64_t *n_bytes, dsmoe_error *error);

#endif

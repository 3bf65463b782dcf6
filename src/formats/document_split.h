/* document_split.h - which part of the documents is held out: neither a model nor its tokenizer learns
 * from it.
 *
 * The choice depends only on the documents, their order and the share, so that every reader of the same
 * files holds out the same text. Whole documents are chosen in a fixed random order until the share of
 * the bytes is reached, separately for each kind of text with enough documents, and for all other kinds
 * together. If a document is too long for what is still needed, only a stretch at its end is held out.
 * A document of the other kinds that is long compared with all that they give, such as a single book,
 * gives its own stretch. So training text touches held-out text only at the beginning of a stretch. A
 * conversation is never cut: all of it is held out instead of a stretch. */
#ifndef DSMOE_FORMATS_DOCUMENT_SPLIT_H
#define DSMOE_FORMATS_DOCUMENT_SPLIT_H

#include "formats/documents.h"

typedef struct document_held {
    uint64_t document; /* its number among all documents of the list */
    uint64_t length;   /* bytes at its end that are held out; all of it if it is shorter */
} document_held;

typedef struct document_split { /* zeros: nothing is held out */
    uint64_t *first;            /* [n_sources + 1] number of documents before each source */
    document_held *held;        /* sorted by document */
    size_t n_held;
} document_split;

/* `progress` is called now and then, with 0 of `total`, to ask whether to continue. */
typedef struct document_watch {
    dsmoe_progress_fn *progress; /* may be NULL */
    void *context;
    double total;
} document_watch;

/* Reads JSON lines once to find the lengths of documents. 0 <= share < 1. If the list has sources to be held
 * out (has_eval), nothing else is held out. */
dsmoe_status document_split_make(document_split *split, const document_list *list, double share,
                                 const document_watch *watch, dsmoe_error *error);
void document_split_free(document_split *split); /* allowed on zeros */

typedef enum document_part { DOCUMENT_TRAIN, DOCUMENT_HELD_OUT } document_part;

/* document_each() for one part of the source with index `source`. A shard is cut after an `eos` token if
 * one is near (-1: no such token). */
dsmoe_status document_split_each(const document_split *split, const document_list *list,
                                 size_t source, document_part part, int32_t eos,
                                 document_visit_fn *visit, void *context, dsmoe_error *error);

/* Where the held-out end of a text begins if it must have about `held` bytes: at the beginning of a
 * line, otherwise of a word, otherwise of a character. */
size_t document_cut(const char *text, size_t length, uint64_t held);

#endif

/* document_split.h - which part of the documents is held out: neither a model nor its tokenizer learns
 * from it.
 *
 * That is a function of the documents in their order, and of the share alone, so that every reader of the
 * same files holds out the same text. Whole documents are chosen in a fixed random order until the share
 * of the bytes is reached: for each kind of text that has documents enough, and for all other kinds
 * together. The document that would be too much gives a stretch at its end. A document of those other
 * kinds that is long beside what they give, such as a single book, gives such a stretch for itself. So no
 * text that is learnt from stands beside held-out text, but at the beginning of a stretch. A conversation is never
 * cut: where it would give a stretch, all of it is held out. */
#ifndef DSMOE_FORMATS_DOCUMENT_SPLIT_H
#define DSMOE_FORMATS_DOCUMENT_SPLIT_H

#include "formats/documents.h"

typedef struct document_held {
    uint64_t document; /* its number among all documents of the list */
    uint64_t length;   /* bytes at its end that are held out, as many as there are at most */
} document_held;

typedef struct document_split { /* zeros: nothing is held out */
    uint64_t *first;            /* [n_sources + 1] documents in the sources before */
    document_held *held;        /* by document */
    size_t n_held;
} document_split;

/* Asked now and then whether to continue; the progress stays at 0 of `total`. */
typedef struct document_watch {
    dsmoe_progress_fn *progress; /* may be NULL */
    void *context;
    double total;
} document_watch;

/* Reads the lines of JSON once, to know how long the documents are. 0 <= share < 1. Where the list has sources to be
 * held out, those are, and nothing else. */
dsmoe_status document_split_make(document_split *split, const document_list *list, double share,
                                 const document_watch *watch, dsmoe_error *error);
void document_split_free(document_split *split); /* allowed on zeros */

typedef enum document_part { DOCUMENT_TRAIN, DOCUMENT_HELD_OUT } document_part;

/* document_each for one part of the source of that index. A shard is cut after `eos` (-1: there is
 * none), if one is near. */
dsmoe_status document_split_each(const document_split *split, const document_list *list,
                                 size_t source, document_part part, int32_t eos,
                                 document_visit_fn *visit, void *context, dsmoe_error *error);

/* Where the held-out end of a text begins, if it is to have about `held` bytes: at the beginning of a
 * line, otherwise of a word, otherwise of a character. */
size_t document_cut(const char *text, size_t length, uint64_t held);

#endif

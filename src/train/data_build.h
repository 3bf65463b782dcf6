/* data_build.h - documents become tokens in a cache file. */
#ifndef DSMOE_TRAIN_DATA_BUILD_H
#define DSMOE_TRAIN_DATA_BUILD_H

#include "formats/document_split.h"
#include "train/data_cache.h"

typedef struct data_build_options {
    const document_list *list;
    const dsmoe_tokenizer *tokenizer; /* NULL: there are only shards of tokens */
    int64_t vocab_size;
    double held_out;       /* share of the text; not looked at if the list says what to hold out */
    const char *chat_form; /* of conversations; NULL: the tokenizer's own */
    bool learns_all;       /* of conversations, not only the answers */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes of the files */
    void *context;
} data_build_options;

/* A number for all that decides what the cache holds: the files' content, forms and kinds in their
 * order, the tokenizer, vocab_size, held_out, the form of conversations and what of them is learnt, and the rules of
 * this file. */
dsmoe_status data_build_key(const data_build_options *options, hash_kind hashed, uint64_t *key,
                            dsmoe_error *error);

/* Whether a cache of another key was made from the same text nevertheless: under other names, which are
 * the names of the kinds, or by the rules before these, which held out other documents or knew of no
 * conversations. */
dsmoe_status data_build_find_text(const data_build_options *options, const data_cache *cache,
                                  bool *found, dsmoe_error *error);

/* Writes the cache file, what is trained on first; its key is by XXH64. Each text is followed by EOS, if the tokenizer
 * has one, and comes after BOS if prompts will; shards are taken as they are. Conversations become what
 * data_conversation.h says; those with nothing to learn are left out and counted. The same files for any number of
 * threads. */
dsmoe_status data_build(const data_build_options *options, const char *path, uint64_t key,
                        dsmoe_error *error);

/* How much of a text is encoded in one piece, at least 1 byte: all of a short one, otherwise up to where the
 * tokens are as if it were not cut. Byte-level tokenizers do not merge across the end of a line between
 * two characters that are not spaces. Where a megabyte has no such place, the beginning of any line, a
 * space between words or in the end the beginning of a character must do, and a token or two may be
 * others. (A tokenizer that puts a space before a text does so before each piece.) */
enum { DATA_PIECE = 128 << 10, DATA_PIECE_MAX = 1 << 20 };
size_t data_piece_length(const char *text, size_t length);

#endif

/* data_build.h - turns documents into tokens in a cache file. */
#ifndef DSMOE_TRAIN_DATA_BUILD_H
#define DSMOE_TRAIN_DATA_BUILD_H

#include "formats/document_split.h"
#include "train/data_cache.h"

typedef struct data_build_options {
    const document_list *list;
    const dsmoe_tokenizer *tokenizer; /* NULL: only shards of tokens can be used */
    int64_t vocab_size;
    double held_out;       /* share of the text; ignored if the list says what to hold out */
    const char *chat_form; /* the form of conversations; NULL: the tokenizer's own */
    bool learns_all;       /* learn all of a conversation, not only the answers */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes of the files */
    void *context;
} data_build_options;

/* A hash of everything that determines what the cache holds: the content, forms and kinds of the files in
 * their order, the tokenizer, vocab_size, held_out, the form of conversations and what is learned of them,
 * and the rules of this file. */
dsmoe_status data_build_key(const data_build_options *options, hash_kind hashed, uint64_t *key,
                            dsmoe_error *error);

/* Whether a cache with another key was nevertheless made from the same text. That is so if the files were
 * renamed, because their names are the names of the kinds, or if the cache was made by earlier rules,
 * which held out other documents or did not know conversations. */
dsmoe_status data_build_find_text(const data_build_options *options, const data_cache *cache,
                                  bool *found, dsmoe_error *error);

/* Writes the cache file, training data first; its key is by XXH64. EOS is put after each text, if the
 * tokenizer has one, and BOS before it if prompts will have one; shards are taken as they are.
 * data_conversation.h says what conversations become; those with nothing to learn are left out and
 * counted. The file is the same for any number of threads. */
dsmoe_status data_build(const data_build_options *options, const char *path, uint64_t key,
                        dsmoe_error *error);

/* How much of a text is encoded in one piece, at least 1 byte: all of a short text, otherwise up to a
 * place where cutting does not change the tokens. Byte-level tokenizers do not merge across the end of a
 * line between two characters that are not spaces. If a megabyte has no such place, it is cut at the
 * beginning of any line, at a space between words, or else at the beginning of a character, and one or two
 * tokens may differ. (A tokenizer that puts a space before a text does so before each piece.) */
enum { DATA_PIECE = 128 << 10, DATA_PIECE_MAX = 1 << 20 };
size_t data_piece_length(const char *text, size_t length);

#endif

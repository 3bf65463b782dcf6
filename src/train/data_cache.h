/* data_cache.h - tokens of all documents in one file, which is mapped when it is used. The training tokens
 * come first, then the held-out ones.
 *
 * The file begins as a public shard of tokens does: a reader that reads as many tokens as the header says
 * finds them all. After the count the header has fields of our own. After the tokens come the kinds of
 * text and, if there are conversations, the end of each document and a bit for each token that is to be
 * learned. The key is a hash of what the file was made from. Hashes of header, tokens and list show whether
 * the file is still the one that was written. */
#ifndef DSMOE_TRAIN_DATA_CACHE_H
#define DSMOE_TRAIN_DATA_CACHE_H

#include "base/hash.h"
#include "formats/documents.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "formats/token_shard.h"

/* The tokens from the end of the previous range up to `end` are of one kind. */
typedef struct data_range {
    uint32_t end, kind;
} data_range;

/* What a document is. Only a text may be split. If there are preferences, all documents are preferences;
 * the rejected conversation comes right after the chosen one. */
typedef enum data_what { DATA_CONVERSATION, DATA_TEXT, DATA_CHOSEN, DATA_REJECTED } data_what;

/* The tokens from the end of the previous document up to `end` are one document. */
typedef struct data_document {
    uint32_t end, what;
} data_document;

typedef struct data_cache {
    char *path;
    mapped_file file;
    hash_kind hashed; /* the hash of the key and of all hashes in the file */
    uint64_t key;
    int64_t vocab_size;
    double held_out;    /* the share asked for */
    token_shard tokens; /* all below vocab_size */
    int64_t n_train;    /* how many of them are trained on */
    uint64_t token_hash;
    int64_t n_documents, n_bytes;
    data_range *ranges; /* in rising order, up to the last token */
    size_t n_ranges;
    data_document *documents;    /* the same; NULL: there are no conversations */
    size_t n_cuts;               /* number of documents */
    const unsigned char *learnt; /* a bit for each token, if there are conversations */
    bool has_eval;               /* held-out data was given separately */
    int64_t n_unanswered;        /* conversations left out because they have nothing to learn */
    char *kinds[DOCUMENT_MAX_KINDS];
    int n_kinds;
} data_cache;

/* Parses the bytes of a cache file. They must stay as long as the cache is used. A message says what is
 * wrong with them and calls the file `source`. The cache must be closed, even after a failure. */
dsmoe_status data_cache_parse(const void *bytes, size_t size, const char *source, data_cache *cache,
                              dsmoe_error *error);
/* The same for a file, which is mapped. */
dsmoe_status data_cache_open(data_cache *cache, const char *path, dsmoe_error *error);
void data_cache_close(data_cache *cache); /* a zeroed cache is allowed */
/* Fails if the file has changed while it was in use: tokens read since then may be zeros. */
dsmoe_status data_cache_check_intact(const data_cache *cache, dsmoe_error *error);
/* The kind of text that a token is in. */
int data_cache_kind(const data_cache *cache, int64_t token);
/* Whether a token is to be learned; for caches with documents. */
static inline bool data_cache_is_learnt(const data_cache *cache, int64_t token)
{
    return cache->learnt[token / 8] >> token % 8 & 1;
}

/* Writes a cache front to back. The file appears when it is finished. */
enum { DATA_CACHE_WAITING = 1 << 16 };
typedef struct data_cache_writer {
    partial_file file;
    int64_t vocab_size;
    int token_size;
    size_t n_tokens;
    int64_t n_documents, n_bytes; /* counted by the caller */
    size_t n_train;               /* set by the caller when the first held-out token comes */
    bool has_eval;                /* set by the caller */
    int64_t n_unanswered;
    hash_state hash;
    data_range *ranges;
    size_t n_ranges, range_capacity;
    data_document *documents;
    size_t n_cuts, cut_capacity;
    bool has_conversations;
    unsigned char *learnt; /* from the first conversation on: bits of earlier tokens are set */
    size_t learnt_capacity;
    int32_t *waiting; /* [DATA_CACHE_WAITING] tokens not yet in the file */
    unsigned char *packed;
    size_t n_waiting;
} data_cache_writer;

dsmoe_status data_cache_create(data_cache_writer *w, const char *path, int64_t vocab_size,
                               dsmoe_error *error);
/* Appends tokens below vocab_size of one kind of text. */
dsmoe_status data_cache_append(data_cache_writer *w, const int32_t *tokens, size_t n, int kind,
                               dsmoe_error *error);
/* Appends a conversation (or half a preference); tokens with learnt[i] are to be learned. */
dsmoe_status data_cache_append_conversation(data_cache_writer *w, data_what what,
                                            const int32_t *tokens, const char *learnt, size_t n,
                                            int kind, dsmoe_error *error);
/* Whether the documents are preferences. */
static inline bool data_cache_has_pairs(const data_cache *cache)
{
    return cache->documents && cache->documents[0].what >= DATA_CHOSEN;
}
/* Ends a text document: it has all that was appended since the last document. */
dsmoe_status data_cache_end_text(data_cache_writer *w, dsmoe_error *error);
/* On failure nothing is left except the file that was there before. */
dsmoe_status data_cache_finish(data_cache_writer *w, uint64_t key, double held_out,
                               char *const *kinds, int n_kinds, dsmoe_error *error);
/* Removes what was written. Allowed after finish, after a failed create, and on a zeroed writer. */
void data_cache_abandon(data_cache_writer *w);

#endif

/* data_cache.h - tokens of all documents in one file, mapped when it is used: first those that are
 * trained on, then those that are held out.
 *
 * The file begins as a public shard of tokens does: a reader of as many tokens as its header says
 * finds them all. After the count the header has fields of our own; after the tokens lie the kinds of text and,
 * if there are conversations, where each document ends and which tokens are to be learnt. What the file was made
 * from is one number, the key; hashes of header, tokens and list show whether it is still the file that was
 * written. */
#ifndef DSMOE_TRAIN_DATA_CACHE_H
#define DSMOE_TRAIN_DATA_CACHE_H

#include "base/hash.h"
#include "formats/documents.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "formats/token_shard.h"

/* Tokens from the end of the range before up to `end` are of one kind. */
typedef struct data_range {
    uint32_t end, kind;
} data_range;

/* What a document is. A text may be parted. Preferences have no other documents beside them; what was rejected comes
 * right after what was chosen. */
typedef enum data_what { DATA_CONVERSATION, DATA_TEXT, DATA_CHOSEN, DATA_REJECTED } data_what;

/* Tokens from the end of the document before up to `end` are one. */
typedef struct data_document {
    uint32_t end, what;
} data_document;

typedef struct data_cache {
    char *path;
    mapped_file file;
    hash_kind hashed; /* by which the key and all hashes of the file were made */
    uint64_t key;
    int64_t vocab_size;
    double held_out;    /* the share that was asked for */
    token_shard tokens; /* all below vocab_size */
    int64_t n_train;    /* so many of them are trained on */
    uint64_t token_hash;
    int64_t n_documents, n_bytes;
    data_range *ranges; /* up to the last token, ends rising */
    size_t n_ranges;
    data_document *documents;    /* the same; NULL: there is no conversation among them */
    size_t n_cuts;               /* documents */
    const unsigned char *learnt; /* a bit for each token, if there are conversations */
    bool has_eval;               /* what is held out was given as such */
    int64_t
        n_unanswered; /* conversations that were left out, as there is nothing in them to learn */
    char *kinds[DOCUMENT_MAX_KINDS];
    int n_kinds;
} data_cache;

/* The cache in the bytes of a file, which must stay as long as it is used; the message says what is
 * wrong with them. `source` names the file. The cache is to be closed, also after a failure. */
dsmoe_status data_cache_parse(const void *bytes, size_t size, const char *source, data_cache *cache,
                              dsmoe_error *error);
/* The same for a file, which is mapped. */
dsmoe_status data_cache_open(data_cache *cache, const char *path, dsmoe_error *error);
void data_cache_close(data_cache *cache); /* allowed on zeros */
/* Fails once the file changed while it was in use: tokens that were read since may be
 * zeros. */
dsmoe_status data_cache_check_intact(const data_cache *cache, dsmoe_error *error);
/* The kind of text that a token is in. */
int data_cache_kind(const data_cache *cache, int64_t token);
/* Whether a token is to be learnt; for caches with documents. */
static inline bool data_cache_is_learnt(const data_cache *cache, int64_t token)
{
    return cache->learnt[token / 8] >> token % 8 & 1;
}

/* Writing one front to back. The file appears when it is finished. */
enum { DATA_CACHE_WAITING = 1 << 16 };
typedef struct data_cache_writer {
    partial_file file;
    int64_t vocab_size;
    int token_size;
    size_t n_tokens;
    int64_t n_documents, n_bytes; /* for the writer's user to count */
    size_t n_train;               /* and to say, when the first held-out token comes */
    bool has_eval;                /* to be said too */
    int64_t n_unanswered;
    hash_state hash;
    data_range *ranges;
    size_t n_ranges, range_capacity;
    data_document *documents;
    size_t n_cuts, cut_capacity;
    bool has_conversations;
    unsigned char *learnt; /* from the first conversation on: bits of all tokens before are set */
    size_t learnt_capacity;
    int32_t *waiting; /* [DATA_CACHE_WAITING] tokens that are not yet in the file */
    unsigned char *packed;
    size_t n_waiting;
} data_cache_writer;

dsmoe_status data_cache_create(data_cache_writer *w, const char *path, int64_t vocab_size,
                               dsmoe_error *error);
/* Tokens below vocab_size of one kind of text. */
dsmoe_status data_cache_append(data_cache_writer *w, const int32_t *tokens, size_t n, int kind,
                               dsmoe_error *error);
/* A conversation (or half a preference), of whose tokens those with learnt[i] are to be learnt. */
dsmoe_status data_cache_append_conversation(data_cache_writer *w, data_what what,
                                            const int32_t *tokens, const char *learnt, size_t n,
                                            int kind, dsmoe_error *error);
/* Whether the documents are preferences. */
static inline bool data_cache_has_pairs(const data_cache *cache)
{
    return cache->documents && cache->documents[0].what >= DATA_CHOSEN;
}
/* What was appended since the last document is one of text. */
dsmoe_status data_cache_end_text(data_cache_writer *w, dsmoe_error *error);
/* On failure nothing is left but the file that was there before. */
dsmoe_status data_cache_finish(data_cache_writer *w, uint64_t key, double held_out,
                               char *const *kinds, int n_kinds, dsmoe_error *error);
/* Removes what was written. Allowed after finish, after a failed create, and on zeros. */
void data_cache_abandon(data_cache_writer *w);

#endif

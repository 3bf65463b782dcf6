/* dsmoe/data.h - data to train on: files, a tokenizer for them, sequences of tokens. */
#ifndef DSMOE_DATA_H
#define DSMOE_DATA_H

#include "engine.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of bytes in a text that are not UTF-8 (or are NUL). A file that is binary, which means a
 * NUL among its first 8000 bytes, is always left out. */
typedef enum dsmoe_bad_bytes {
    DSMOE_BAD_BYTES_REPLACE = 0, /* each is read as U+FFFD, as editors show it; a file in which they
                                    are more than three in ten is left out, as it is not text */
    DSMOE_BAD_BYTES_KEEP = 1,    /* they are learnt as they are; in JSON lines they are an error */
    DSMOE_BAD_BYTES_SKIP = 2,    /* the whole file is left out */
} dsmoe_bad_bytes;
/* "replace", "keep" or "skip"; false for any other name. */
DSMOE_API bool dsmoe_bad_bytes_find(const char *name, dsmoe_bad_bytes *bad_bytes);

typedef enum dsmoe_left_out {
    DSMOE_LEFT_OUT_BINARY,    /* not text, or a .bin file that is not a shard of tokens */
    DSMOE_LEFT_OUT_BAD_BYTES, /* because of DSMOE_BAD_BYTES_SKIP */
    DSMOE_LEFT_OUT_EMPTY,
    DSMOE_LEFT_OUT_LINK,    /* leads nowhere, or to a folder that the link lies in */
    DSMOE_LEFT_OUT_SPECIAL, /* a device, a FIFO, a socket */
    DSMOE_LEFT_OUT_TWICE,   /* a file or folder that was reached before by another name */
    DSMOE_N_LEFT_OUT,
} dsmoe_left_out;

/* What was found at the paths of some data. Hidden files of folders are not counted at all. */
typedef struct dsmoe_data_files {
    int64_t n_files, n_bytes; /* that are read */
    int64_t n_left_out[DSMOE_N_LEFT_OUT], n_bytes_left_out;
    char first_left_out[DSMOE_PATH]; /* "" if there is none */
    dsmoe_bad_bytes bad_bytes;
    int64_t n_bad_files, n_bad_bytes; /* files that are read and have bad bytes, and those bytes */
    char first_bad[DSMOE_PATH];
} dsmoe_data_files;
/* One line that says what was left out or replaced and why, cut to `size`; "" if nothing was. */
DSMOE_API void dsmoe_data_files_describe(const dsmoe_data_files *files, char *text, size_t size);

/* Trains a byte-level BPE tokenizer of `vocab_size` tokens on the documents of the paths (see
 * dsmoe_dataset_options) and writes tokenizer.json and tokenizer_config.json into `folder`, which is
 * created if it does not exist. The last two ids are the special tokens that begin and end a text. The same text
 * gives the same files, for any number of threads. A text that is too small for so many tokens is an
 * error that says how many it allows. Shards of tokens beside text are an error, as they were made by
 * another tokenizer. `progress` (may be NULL) counts bytes, then merges. */
typedef struct dsmoe_tokenizer_train_options {
    const char *const *paths;
    int n_paths;
    int64_t vocab_size; /* 0: 8192, or as many as the text allows */
    int64_t max_bytes;  /* of text that is looked at, evenly over the documents; 0: 100 MB */
    int n_threads;      /* 0: all processors */
    bool replace;       /* an existing tokenizer; never that of a run or a model */
    double held_out;    /* share of the text that is not looked at: that which a dataset of the same
                           paths, bad_bytes and held_out holds out */
    dsmoe_bad_bytes bad_bytes;
    /* Receive, if they are not NULL, the bytes that were looked at and the tokens they now have, and
     * what was found at the paths. */
    int64_t *n_text_bytes, *n_text_tokens;
    dsmoe_data_files *files;
} dsmoe_tokenizer_train_options;
DSMOE_API dsmoe_status dsmoe_tokenizer_train(const dsmoe_tokenizer_train_options *options,
                                             const char *folder, dsmoe_progress_fn *progress,
                                             void *context, dsmoe_error *error);

/* Documents as one long row of tokens, each ended by EOS (and begun by BOS, if the tokenizer's prompts
 * are), cut into sequences of equal length. They are tokenised once into a cache file, which is mapped,
 * and made again when a source's content, held_out, the tokenizer or the form of the cache changes.
 *
 * What is held out is never trained on. Which documents that are follows from the documents, their order
 * and the share alone, whatever the seed, the sequence_length or the tokenizer: whole documents, of every
 * kind of text, in a fixed random order; and where a document is larger than what is still needed, a
 * stretch at its end. They make a row of their own, so that no sequence has both.
 *
 * Conversations are not cut into a row: whole ones are packed into sequences, best fit, each to be learnt with its own
 * attention and positions, and the rest of a sequence is padding. Texts beside them are packed with them, in parts if
 * they are longer than a sequence. Held-out conversations have a sequence each. */
typedef struct dsmoe_dataset dsmoe_dataset;
typedef struct dsmoe_dataset_options {
    /* Each a text file, a .jsonl file with a text or a conversation on each line (docs/tune.md lists the
     * forms), a shard of tokens (.bin), or a folder with such files, looked through in the order of their
     * names. Links are followed; a file that is reached twice is read once. Without paths it is the cache
     * file as it is: an error if it is damaged, or was made with another vocab_size or held_out. */
    const char *const *paths;
    int n_paths;
    /* Text to hold out instead of a share; held_out must be 0. */
    const char *const *eval_paths;
    int n_eval_paths;
    dsmoe_bad_bytes bad_bytes;
    const dsmoe_tokenizer *tokenizer; /* NULL: there are only shards of tokens */
    /* Of conversations: */
    const char *chat_form; /* the name of their form; NULL: that of the tokenizer's model */
    bool learns_all;       /* questions and frame too, rather than the answers */
    bool drops_long;       /* leaves out what is too long for a sequence, instead of cutting it */
    bool packs_nothing;    /* each has a sequence of its own */
    const char *cache;     /* the folder for the cache file */
    int64_t vocab_size;    /* every token is below it */
    int64_t sequence_length;
    double held_out; /* share of the text that is never trained on; 0: none */
    uint64_t seed;   /* of the order */
    int n_threads;   /* 0: all processors */
    /* Not 0: the data must have this dsmoe_dataset_info.hash, as it is that of a run which goes on; a cache
     * file with it is not replaced. */
    uint64_t expected_hash;
} dsmoe_dataset_options;
DSMOE_API dsmoe_status dsmoe_dataset_open(const dsmoe_dataset_options *options,
                                          dsmoe_progress_fn *progress, void *context,
                                          dsmoe_dataset **dataset, dsmoe_error *error);
DSMOE_API void dsmoe_dataset_free(dsmoe_dataset *dataset);

typedef struct dsmoe_dataset_info {
    int64_t n_tokens, n_documents, n_bytes; /* bytes of text; 0 for shards of tokens */
    int64_t n_train, n_held_out;            /* sequences */
    int64_t n_tokens_held_out;              /* of n_tokens */
    int64_t sequence_length;
    uint64_t hash;    /* of all tokens and the way they are cut: another number, other data */
    bool cache_built; /* this time, rather than found */
    int n_kinds;      /* kinds of text: the entries of the folders given, or the files themselves */
    /* Where there are conversations: */
    bool is_packed;
    /* They are preferences: each counts as one conversation, but has two held-out sequences, what was chosen and then
     * what was rejected. */
    bool has_pairs;
    int64_t n_conversations; /* in the training sequences, parts of texts included */
    /* Of the training sequences: without padding, and to be learnt. */
    int64_t n_packed_tokens, n_targets;
    int64_t n_cut, n_dropped; /* conversations that are too long for a sequence */
    int64_t n_unanswered;     /* that were left out, as there is nothing in them to learn */
} dsmoe_dataset_info;
DSMOE_API dsmoe_dataset_info dsmoe_dataset_get_info(const dsmoe_dataset *dataset);
/* What was found at the paths; lives as long as the data. */
DSMOE_API const dsmoe_data_files *dsmoe_dataset_files(const dsmoe_dataset *dataset);
DSMOE_API const char *dsmoe_dataset_kind_name(const dsmoe_dataset *dataset, int kind);

/* n training sequences from number `first` on, an endless row: every n_train of them are a new random
 * order of all. The arrays are [n, sequence_length], as dsmoe_batch has them; the target of a token is the one
 * after it; positions may be NULL, but say where conversations begin if info.is_packed. A pure function of the
 * data, the seed and `first`. Returns how many there are: n, or 0 if a number is negative or the row would go
 * beyond INT64_MAX. */
DSMOE_API int64_t dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                      int32_t *tokens, int32_t *targets, int32_t *positions);
/* How many targets (or preferences, where info.has_pairs) and tokens, padding apart, those sequences have. */
DSMOE_API void dsmoe_dataset_count(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                   int64_t *n_targets, int64_t *n_tokens);
/* The same for the held-out sequences from `first` on, in a fixed random order; `kinds` (may be NULL)
 * receives the kind of text that each begins in. Returns how many there are: fewer than n where
 * n_held_out is reached, and 0 from there on or if a number is negative. */
DSMOE_API int64_t dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                         int32_t *tokens, int32_t *targets, int32_t *positions,
                                         int *kinds);
/* Fails once the cache file changed while it was in use: tokens that the two gave since may
 * not be those of the data. Cheap enough to ask after each batch. */
DSMOE_API dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error);

/* Mean -log probability of the targets of the first n held-out sequences under a model (all of them if n is 0 or
 * larger), all targets together. */
typedef struct dsmoe_held_out_options {
    int64_t n;
    int n_threads;      /* 0: all processors */
    double *losses;     /* [n] may be NULL: those of each sequence */
    int64_t *n_targets; /* [n] may be NULL: of how many targets that is the mean */
    /* Sees the routing of sequence after sequence; `position` counts tokens from the first one on. May be NULL. */
    dsmoe_routing_fn *watch;
    dsmoe_progress_fn *progress; /* may be NULL; counts sequences */
    void *context;
} dsmoe_held_out_options;
DSMOE_API dsmoe_status dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                           const dsmoe_held_out_options *options, double *loss,
                                           dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

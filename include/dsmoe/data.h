/* dsmoe/data.h - data to train on: files, a tokenizer for them, sequences of tokens. */
#ifndef DSMOE_DATA_H
#define DSMOE_DATA_H

#include "engine.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to do with bytes in a text that are not UTF-8 (or are NUL). A binary file, one with a NUL among its
 * first 8000 bytes, is always left out. */
typedef enum dsmoe_bad_bytes {
    DSMOE_BAD_BYTES_REPLACE = 0, /* each is read as U+FFFD, as editors show it; a file with more
                                    than three such bytes in ten is not text and is left out */
    DSMOE_BAD_BYTES_KEEP = 1,    /* they are kept; in JSON lines they are an error */
    DSMOE_BAD_BYTES_SKIP = 2,    /* the whole file is left out */
} dsmoe_bad_bytes;
/* "replace", "keep" or "skip"; false for any other name. */
DSMOE_API bool dsmoe_bad_bytes_find(const char *name, dsmoe_bad_bytes *bad_bytes);

typedef enum dsmoe_left_out {
    DSMOE_LEFT_OUT_BINARY,    /* not text, or a .bin file that is not a shard of tokens */
    DSMOE_LEFT_OUT_BAD_BYTES, /* because of DSMOE_BAD_BYTES_SKIP */
    DSMOE_LEFT_OUT_EMPTY,
    DSMOE_LEFT_OUT_LINK,    /* broken, or leads to a folder that contains it */
    DSMOE_LEFT_OUT_SPECIAL, /* a device, a FIFO, a socket */
    DSMOE_LEFT_OUT_TWICE,   /* a file or folder already reached by another name */
    DSMOE_N_LEFT_OUT,
} dsmoe_left_out;

/* What was found at the paths of the data. Hidden files in folders are not counted. */
typedef struct dsmoe_data_files {
    int64_t n_files, n_bytes; /* that are read */
    int64_t n_left_out[DSMOE_N_LEFT_OUT], n_bytes_left_out;
    char first_left_out[DSMOE_PATH]; /* "" if there is none */
    dsmoe_bad_bytes bad_bytes;
    int64_t n_bad_files, n_bad_bytes; /* files read that have bad bytes; their bad bytes */
    char first_bad[DSMOE_PATH];
} dsmoe_data_files;
/* Writes one line that says what was left out or replaced and why, cut to `size`; "" if nothing was. */
DSMOE_API void dsmoe_data_files_describe(const dsmoe_data_files *files, char *text, size_t size);

/* Trains a byte-level BPE tokenizer of `vocab_size` tokens on the documents of the paths (see
 * dsmoe_dataset_options). Writes tokenizer.json and tokenizer_config.json into `folder`, which is created if
 * it does not exist. The last two ids are the special tokens that begin and end a text. The same text gives
 * the same files, for any number of threads. If the text is too small for that many tokens, the error says
 * how many it allows. Shards of tokens among the paths are an error, because another tokenizer made them.
 * `progress` (may be NULL) counts bytes, then merges. */
typedef struct dsmoe_tokenizer_train_options {
    const char *const *paths;
    int n_paths;
    int64_t vocab_size; /* 0: 8192, or as many as the text allows */
    int64_t max_bytes;  /* bytes of text to look at, taken evenly from the documents; 0: 100 MB */
    int n_threads;      /* 0: all processors */
    bool replace;       /* replace an existing tokenizer, but never that of a run or a model */
    double held_out;    /* share of the text to leave out: what a dataset with the same paths,
                           bad_bytes and held_out holds out */
    dsmoe_bad_bytes bad_bytes;
    /* If not NULL, these receive the bytes that were looked at, the tokens they now make, and what was found
     * at the paths. */
    int64_t *n_text_bytes, *n_text_tokens;
    dsmoe_data_files *files;
} dsmoe_tokenizer_train_options;
DSMOE_API dsmoe_status dsmoe_tokenizer_train(const dsmoe_tokenizer_train_options *options,
                                             const char *folder, dsmoe_progress_fn *progress,
                                             void *context, dsmoe_error *error);

/* Documents are joined into one long stream of tokens, which is cut into sequences of equal length. Each
 * document ends with EOS (and begins with BOS, if the tokenizer's prompts do). The documents are tokenised
 * once into a cache file, which is mapped into memory. It is made again when the content of a source,
 * held_out, the tokenizer or the format of the cache changes.
 *
 * Held-out text is never trained on. It depends only on the documents, their order and the share, not on the
 * seed, the sequence_length or the tokenizer. It consists of whole documents of every kind of text, in a
 * fixed random order. Where a document is larger than what is still needed, a stretch at its end is held out.
 * Held-out text is a stream of its own, so no sequence mixes it with training text.
 *
 * Conversations are not joined into a stream. Whole conversations are packed into sequences, best fit; each
 * is learned with its own attention and positions, and the rest of a sequence is padding. Texts in the same
 * data are packed with them, in parts if they are longer than a sequence. Each held-out conversation has a
 * sequence of its own. */
typedef struct dsmoe_dataset dsmoe_dataset;
typedef struct dsmoe_dataset_options {
    /* Each path is a text file, a .jsonl file with a text or a conversation on each line (docs/tune.md lists
     * the forms), a shard of tokens (.bin), or a folder with such files, which are read in the order of their
     * names. Links are followed; a file that is reached twice is read once. Without paths, the cache file is
     * used as it is; it is an error if the file is damaged or was made with another vocab_size or
     * held_out. */
    const char *const *paths;
    int n_paths;
    /* Text to hold out instead of a share of the data; held_out must then be 0. */
    const char *const *eval_paths;
    int n_eval_paths;
    dsmoe_bad_bytes bad_bytes;
    const dsmoe_tokenizer *tokenizer; /* NULL: the data are only shards of tokens */
    /* For conversations: */
    const char *chat_form; /* the name of their chat form; NULL: that of the tokenizer's model */
    bool learns_all;       /* learn questions and frame too, not only the answers */
    bool drops_long;       /* leave out what is too long for a sequence, instead of cutting it */
    bool packs_nothing;    /* give each conversation a sequence of its own */
    const char *cache;     /* the folder for the cache file */
    int64_t vocab_size;    /* every token must be below it */
    int64_t sequence_length;
    double held_out; /* share of the text that is not trained on; 0: none */
    uint64_t seed;   /* for the order of the sequences */
    int n_threads;   /* 0: all processors */
    /* If not 0, the dsmoe_dataset_info.hash that the data must have, because a run is resumed. A cache file
     * with that hash is not replaced. */
    uint64_t expected_hash;
} dsmoe_dataset_options;
DSMOE_API dsmoe_status dsmoe_dataset_open(const dsmoe_dataset_options *options,
                                          dsmoe_progress_fn *progress, void *context,
                                          dsmoe_dataset **dataset, dsmoe_error *error);
DSMOE_API void dsmoe_dataset_free(dsmoe_dataset *dataset);

typedef struct dsmoe_dataset_info {
    int64_t n_tokens, n_documents, n_bytes; /* bytes of text; 0 for shards of tokens */
    int64_t n_train, n_held_out;            /* sequences */
    int64_t n_tokens_held_out;              /* part of n_tokens */
    int64_t sequence_length;
    uint64_t hash;    /* of all tokens and how they are cut: different data have a different hash */
    bool cache_built; /* by this call; false: it was found */
    int n_kinds;      /* kinds of text: the entries of the given folders, or the given files */
    /* If there are conversations: */
    bool is_packed;
    /* The conversations are preferences. Each counts as one conversation, but has two held-out sequences:
     * first what was chosen, then what was rejected. */
    bool has_pairs;
    int64_t n_conversations; /* in the training sequences, parts of texts included */
    /* Tokens of the training sequences, without padding; and those of them that are to be learned. */
    int64_t n_packed_tokens, n_targets;
    int64_t n_cut, n_dropped; /* conversations too long for a sequence */
    int64_t n_unanswered;     /* conversations left out because nothing in them is to be learned */
} dsmoe_dataset_info;
DSMOE_API dsmoe_dataset_info dsmoe_dataset_get_info(const dsmoe_dataset *dataset);
/* What was found at the paths; valid until the dataset is freed. */
DSMOE_API const dsmoe_data_files *dsmoe_dataset_files(const dsmoe_dataset *dataset);
DSMOE_API const char *dsmoe_dataset_kind_name(const dsmoe_dataset *dataset, int kind);

/* Reads n training sequences, beginning with number `first`. They are an endless series: each n_train of them
 * are all training sequences in a new random order. The arrays are [n, sequence_length], as in dsmoe_batch.
 * The target of a token is the token after it. `positions` may be NULL, but says where conversations begin if
 * info.is_packed. The result depends only on the data, the seed and `first`. Returns the number of sequences:
 * n, or 0 if a number is negative or the series would go beyond INT64_MAX. */
DSMOE_API int64_t dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                      int32_t *tokens, int32_t *targets, int32_t *positions);
/* Counts the targets (or preferences, if info.has_pairs) and the tokens, without padding, of those
 * sequences. */
DSMOE_API void dsmoe_dataset_count(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                   int64_t *n_targets, int64_t *n_tokens);
/* Reads held-out sequences from number `first` on, in a fixed random order. `kinds` (may be NULL) receives
 * the kind of text that each one begins with. Returns the number of sequences: fewer than n if n_held_out is
 * reached, 0 beyond it or if a number is negative. */
DSMOE_API int64_t dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                         int32_t *tokens, int32_t *targets, int32_t *positions,
                                         int *kinds);
/* Fails if the cache file has changed while in use: sequences that were read since then may be wrong. Cheap
 * enough to call after each batch. */
DSMOE_API dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error);

/* Mean -log probability of the targets of the first n held-out sequences under a model, over all targets
 * together. If n is 0 or too large, all sequences are used. */
typedef struct dsmoe_held_out_options {
    int64_t n;
    int n_threads;      /* 0: all processors */
    double *losses;     /* [n] the mean of each sequence; may be NULL */
    int64_t *n_targets; /* [n] number of targets of each; may be NULL */
    /* Called with the routing of one sequence after the other; `position` counts tokens from the first
     * sequence on. May be NULL. */
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

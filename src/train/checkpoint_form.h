/* checkpoint_form.h - what writing and reading a checkpoint have in common: names, and the state as
 * metadata. */
#ifndef DSMOE_TRAIN_CHECKPOINT_FORM_H
#define DSMOE_TRAIN_CHECKPOINT_FORM_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "model/folder_writer.h"
#include "train/checkpoint.h"
#include "train/spread.h"

/* Whether a file of that name belongs to a checkpoint: a folder_owns_fn. */
bool checkpoint_owns(const char *name);

/* The files whose hashes are in training.safetensors: config.json, the weights, and their index if there
 * are several files of weights; or the two files of an adapter. `i` counts from 0; false beyond the last. */
bool checkpoint_hashed_file(int i, int n_model_files, char name[FOLDER_WRITER_NAME]);

/* Keys of training.safetensors' metadata. The hashes (base/hash.h, seed 0) show whether a file is still
 * the one that was written. Formats 2 and 3 can still be read and have the hashes of base/hash_old.h. */
#define CHECKPOINT_FORMAT_KEY "format"
#define CHECKPOINT_FORMAT "dsmoe training state 4"
#define CHECKPOINT_FORMAT_3 "dsmoe training state 3"
#define CHECKPOINT_FORMAT_2 "dsmoe training state 2" /* without the log's interval */
#define CHECKPOINT_INTERVAL "interval_layers" /* 16 hexadecimal digits for both losses of a layer */
#define CHECKPOINT_KERNELS_KEY "kernels"
#define CHECKPOINT_BASE "base"                 /* if a part of a model is trained: its path */
#define CHECKPOINT_BASE_HASH "base_hash"       /* and checkpoint_state.base_hash */
#define CHECKPOINT_FILES "model_files"         /* number of files with weights; 0: an adapter */
#define CHECKPOINT_HASH "hash of "             /* followed by the name of a file */
#define CHECKPOINT_NUMBERS_HASH "numbers_hash" /* hash of training.safetensors' own data */
#define CHECKPOINT_STATE_HASH "state_hash"     /* hash of all its other metadata */
enum {
    CHECKPOINT_HASH_KEY = sizeof CHECKPOINT_HASH + FOLDER_WRITER_NAME,
    CHECKPOINT_MAX_FILES = 99999
};
void checkpoint_hash_key(const char *name, char key[CHECKPOINT_HASH_KEY]);

/* The flat tensors of training.safetensors. `weights` is there only if the model's own are not exact. */
extern const char *const checkpoint_rows[N_ROWS];

/* The members of checkpoint_state that are numbers, all of 8 bytes. */
typedef enum state_kind {
    STATE_INTEGER, /* decimal */
    STATE_BITS,    /* an unsigned number or a double as 16 hexadecimal digits, which are exact */
    STATE_BITS_OR_NONE, /* the same, left out if it is 0 */
} state_kind;
typedef struct state_field {
    const char *key;
    size_t offset;
    state_kind kind;
} state_field;
extern const state_field state_fields[];
extern const int n_state_fields, n_state_fields_2; /* format 2 has the first n_state_fields_2 */

/* RUN/checkpoints/PREFIXstep-00000200SUFFIX */
dsmoe_status checkpoint_path(const char *run, const char *prefix, int64_t step, const char *suffix,
                             char path[CHECKPOINT_PATH], dsmoe_error *error);
/* The step in a folder's name: "step-00000200" between prefix and suffix; -1 if the name has another form. */
int64_t checkpoint_step(const char *name, const char *prefix, const char *suffix);

/* Mapped bytes that are read once from begin to end, and whose pages are given back on the way: a process
 * with a trainer in memory has no room for its files as well. */
typedef struct mapped_bytes {
    const unsigned char *begin, *forgotten;
} mapped_bytes;
/* Everything up to `end` has been read. */
void checkpoint_forget(mapped_bytes *m, const unsigned char *end);
uint64_t checkpoint_hash(hash_kind kind, const unsigned char *bytes, size_t size);

#endif

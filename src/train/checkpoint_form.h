/* checkpoint_form.h - what writing and reading a checkpoint have in common: names, and
 * the state as metadata. */
#ifndef DSMOE_TRAIN_CHECKPOINT_FORM_H
#define DSMOE_TRAIN_CHECKPOINT_FORM_H

#include <stddef.h>
#include <stdint.h>

#include "train/checkpoint.h"

/* All that checkpoint_write puts into a folder. */
extern const char *const checkpoint_files[];
extern const int n_checkpoint_files;

/* Keys of training.safetensors' metadata. The hashes (base/hash.h, seed 0) tell whether a file is still
 * the one that was written. */
#define CHECKPOINT_FORMAT_KEY "format"
#define CHECKPOINT_FORMAT "dsmoe training state 1"
#define CHECKPOINT_CONFIG_HASH "config_hash"   /* of config.json */
#define CHECKPOINT_MODEL_HASH "model_hash"     /* of model.safetensors */
#define CHECKPOINT_MOMENTS_HASH "moments_hash" /* of training.safetensors' own data */
#define CHECKPOINT_STATE_HASH "state_hash"     /* of all other metadata of it */

/* The members of checkpoint_state, all of 8 bytes. */
typedef enum state_kind {
    STATE_INTEGER, /* decimal */
    STATE_BITS,    /* an unsigned number or a double, as 16 hexadecimal digits: exact anywhere */
} state_kind;
typedef struct state_field {
    const char *key;
    size_t offset;
    state_kind kind;
} state_field;
extern const state_field state_fields[];
extern const int n_state_fields;

/* RUN/checkpoints/PREFIXstep-00000200SUFFIX */
dsmoe_status checkpoint_path(const char *run, const char *prefix, int64_t step, const char *suffix,
                             char path[CHECKPOINT_PATH], dsmoe_error *error);
/* The step of a folder's name: "step-00000200" between prefix and suffix; -1 if it is none. */
int64_t checkpoint_step(const char *name, const char *prefix, const char *suffix);

/* Mapped bytes that are read once from begin to end, and whose pages are given back on the way: a
 * process that has a trainer in memory has no room for its files as well. */
typedef struct mapped_bytes {
    const unsigned char *begin, *forgotten;
} mapped_bytes;
/* Everything up to `end` has been read. */
void checkpoint_forget(mapped_bytes *m, const unsigned char *end);
uint64_t checkpoint_hash(const unsigned char *bytes, size_t size);

#endif

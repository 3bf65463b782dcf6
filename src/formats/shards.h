/* shards.h - the tensors of a checkpoint folder: one model.safetensors, or several files named by
 * model.safetensors.index.json. All files are opened and checked immediately (headers only: no value is
 * read) and stay mapped until shards_close. */
#ifndef DSMOE_FORMATS_SHARDS_H
#define DSMOE_FORMATS_SHARDS_H

#include "formats/safetensors.h"

typedef struct shards shards;

/* Takes model.safetensors if both are there. Names in an index must be plain file names: no '/', no
 * "..". A symbolic link must not lead out of the folder, except in the Hugging Face cache
 * (snapshots/REVISION/NAME to blobs/HASH). A tensor must be in the file that the index names, and in
 * no other. Index and files must have the same tensors, and metadata.total_size, if given, must be
 * the sum of their bytes. */
dsmoe_status shards_open(const char *folder, shards **set, dsmoe_error *error);
void shards_close(shards *set); /* NULL is allowed */

/* Fails if one of the files changed while it was in use: see safetensors_check_intact. */
dsmoe_status shards_check_intact(const shards *set, dsmoe_error *error);
size_t shards_mapped_size(const shards *set); /* bytes of all files */

/* All tensors of all files, in [0, count), in the order of their names (as bytes). */
size_t shards_count(const shards *set);
const safetensors_tensor *shards_at(const shards *set, size_t index);
/* NULL if there is none; `index` may be NULL. */
const safetensors_tensor *shards_find(const shards *set, const char *name, size_t *index);
/* The file a tensor lies in, for messages. */
const char *shards_path(const shards *set, size_t index);

#endif

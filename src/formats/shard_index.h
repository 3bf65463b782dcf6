/* shard_index.h - what model.safetensors.index.json says: which tensor lies in which file. The text is
 * checked for itself here; whether the files agree with it is seen by shards.c. */
#ifndef DSMOE_FORMATS_SHARD_INDEX_H
#define DSMOE_FORMATS_SHARD_INDEX_H

#include "formats/json.h"

typedef struct index_entry {
    const char *tensor, *file_name; /* a plain file name: no '/', not "." or ".." */
    size_t file;                    /* the number of that file, for the opener of the files */
} index_entry;

typedef struct shard_index {
    json_node *root;                          /* owns the names */
    const json_node *weight_map, *total_size; /* the latter may be NULL */
    index_entry *entries;                     /* by file name; at least one */
    size_t n_entries;
} shard_index;

/* `source` names the text in messages. After a failure there is nothing to close. */
dsmoe_status shard_index_parse(shard_index *index, const char *text, size_t length,
                               const char *source, dsmoe_error *error);
dsmoe_status shard_index_read(shard_index *index, const char *path, dsmoe_error *error);
void shard_index_close(shard_index *index);

bool shard_index_names(const shard_index *index, const char *tensor);
/* Whether metadata.total_size, if it is given, is that many bytes. */
bool shard_index_has_size(const shard_index *index, size_t size);
/* Whether the next entry is of another file. */
bool shard_index_is_last_of_file(const shard_index *index, size_t entry);

#endif

/* shard_index.h - model.safetensors.index.json: which tensor is in which file. Only its text is checked
 * here; shards.c checks that the files agree with it. */
#ifndef DSMOE_FORMATS_SHARD_INDEX_H
#define DSMOE_FORMATS_SHARD_INDEX_H

#include "formats/json.h"

typedef struct index_entry {
    const char *tensor, *file_name; /* a plain file name: no '/', not "." or ".." */
    size_t file;                    /* the index of that file; set by shards.c */
} index_entry;

typedef struct shard_index {
    json_node *root;                          /* owns the names */
    const json_node *weight_map, *total_size; /* total_size may be NULL */
    index_entry *entries;                     /* sorted by file name; at least one */
    size_t n_entries;
} shard_index;

/* `source` names the text in messages. After a failure there is nothing to close. */
dsmoe_status shard_index_parse(shard_index *index, const char *text, size_t length,
                               const char *source, dsmoe_error *error);
dsmoe_status shard_index_read(shard_index *index, const char *path, dsmoe_error *error);
void shard_index_close(shard_index *index);

bool shard_index_names(const shard_index *index, const char *tensor);
/* Whether metadata.total_size, if given, equals `size`. */
bool shard_index_has_size(const shard_index *index, size_t size);
/* Whether the entry is the last of its file. */
bool shard_index_is_last_of_file(const shard_index *index, size_t entry);

#endif

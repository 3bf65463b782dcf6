/* shard_index.c - reads model.safetensors.index.json. */
#include "formats/shard_index.h"

#include <stdlib.h>
#include <string.h>

/* The index of the released model has 5466 tensors in half a megabyte. */
enum { INDEX_MAX_SIZE = 16 << 20 };

/* An index being filled, and its name for messages. */
typedef struct index_job {
    shard_index *index;
    const char *source;
} index_job;

static dsmoe_status visit_entry(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    const index_job *job = context;
    if (json_node_kind(value) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: weight_map: the file of tensor '%.128s' must be a string, not %s",
                           job->source, key, json_kind_name(json_node_kind(value)));
    const char *name = json_node_string(value, NULL);
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: weight_map: the file of tensor '%.128s', '%.128s', is not a plain"
                           " file name",
                           job->source, key, name);
    job->index->entries[job->index->n_entries++] = (index_entry){.tensor = key, .file_name = name};
    return DSMOE_OK;
}

static int compare_file_names(const void *left, const void *right)
{
    const index_entry *a = left, *b = right;
    return strcmp(a->file_name, b->file_name);
}

static dsmoe_status read_weight_map(const index_job *job, dsmoe_error *error)
{
    shard_index *index = job->index;
    bool is_object = json_node_kind(index->root) == JSON_KIND_OBJECT;
    index->weight_map = is_object ? json_node_member(index->root, "weight_map") : NULL;
    if (!index->weight_map)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: there is no weight_map", job->source);
    if (json_node_kind(index->weight_map) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: weight_map must be an object, not %s",
                           job->source, json_kind_name(json_node_kind(index->weight_map)));
    if (json_node_count(index->weight_map) == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: weight_map is empty", job->source);
    index->entries = calloc(json_node_count(index->weight_map), sizeof *index->entries);
    if (!index->entries)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", job->source);
    STATUS_TRY(json_node_each(index->weight_map, visit_entry, (void *)job, error));
    qsort(index->entries, index->n_entries, sizeof *index->entries, compare_file_names);
    return DSMOE_OK;
}

static dsmoe_status read_total_size(const index_job *job, dsmoe_error *error)
{
    const json_node *metadata = json_node_member(job->index->root, "metadata");
    if (!metadata || json_node_kind(metadata) == JSON_KIND_NULL) return DSMOE_OK;
    if (json_node_kind(metadata) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: metadata must be an object, not %s",
                           job->source, json_kind_name(json_node_kind(metadata)));
    const json_node *node = job->index->total_size = json_node_member(metadata, "total_size");
    json_kind kind = node ? json_node_kind(node) : JSON_KIND_INTEGER;
    if (kind == JSON_KIND_INTEGER || kind == JSON_KIND_REAL) return DSMOE_OK; /* 1024.0 occurs */
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: metadata: total_size must be a number, not %s", job->source,
                       json_kind_name(kind));
}

/* Reads the parsed index. */
static dsmoe_status read_tree(shard_index *index, const char *source, dsmoe_error *error)
{
    index_job job = {index, source};
    dsmoe_status status = read_weight_map(&job, error);
    if (status == DSMOE_OK) status = read_total_size(&job, error);
    if (status != DSMOE_OK) shard_index_close(index);
    return status;
}

dsmoe_status shard_index_parse(shard_index *index, const char *text, size_t length,
                               const char *source, dsmoe_error *error)
{
    *index = (shard_index){0};
    STATUS_TRY(json_node_parse(text, length, source, &index->root, error));
    return read_tree(index, source, error);
}

dsmoe_status shard_index_read(shard_index *index, const char *path, dsmoe_error *error)
{
    *index = (shard_index){0};
    STATUS_TRY(json_node_read(path, INDEX_MAX_SIZE, &index->root, error));
    return read_tree(index, path, error);
}

void shard_index_close(shard_index *index)
{
    free(index->entries);
    json_node_free(index->root);
    *index = (shard_index){0};
}

bool shard_index_names(const shard_index *index, const char *tensor)
{
    return json_node_member(index->weight_map, tensor) != NULL;
}

bool shard_index_has_size(const shard_index *index, size_t size)
{
    const json_node *total = index->total_size;
    if (!total) return true;
    return json_node_kind(total) == JSON_KIND_INTEGER ? json_node_integer(total) == (int64_t)size
                                                      : json_node_number(total) == (double)size;
}

bool shard_index_is_last_of_file(const shard_index *index, size_t entry)
{
    return entry + 1 == index->n_entries ||
           compare_file_names(&index->entries[entry], &index->entries[entry + 1]) != 0;
}

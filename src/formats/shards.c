/* shards.c - opens the safetensors files of a checkpoint folder and merges their tensors.
 *
 * The folder may come from anywhere, so an index must not lead out of it: it may name only plain
 * files, and a symbolic link must lead to a file inside the folder. The one exception is the download
 * cache of the Hugging Face hub, where snapshots/REVISION/ holds links into the blobs/ folder next to
 * snapshots/. */
#include "formats/shards.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/mapped_file.h"
#include "formats/shard_index.h"

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

typedef struct shard_tensor {
    const safetensors_tensor *tensor;
    size_t file;
} shard_tensor;

struct shards {
    char folder[PATH_MAX]; /* without symbolic links */
    safetensors **files;
    size_t n_files;
    shard_tensor *tensors; /* sorted by name */
    size_t n_tensors;
};

/* ---- the place of a file ------------------------------------------------------------------ */

static dsmoe_status find_folder(shards *set, const char *folder, dsmoe_error *error)
{
    struct stat info;
    if (!realpath(folder, set->folder) || stat(set->folder, &info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the folder: %s", folder,
                           strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return status_fail(error, DSMOE_ERROR_IO, "%s: not a folder", folder);
    return DSMOE_OK;
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0; /* a broken link counts, and is an error later */
}

static bool lies_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    if (folder[length - 1] == '/') length--; /* the root */
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Whether `path` lies in CACHE/blobs and `folder` is CACHE/snapshots/REVISION. */
static bool lies_in_cache(const char *path, const char *folder)
{
    static const char snapshots[] = "/snapshots";
    size_t length = (size_t)(strrchr(folder, '/') - folder), tail = sizeof snapshots - 1;
    if (length < tail || strncmp(folder + length - tail, snapshots, tail) != 0) return false;
    char blobs[PATH_MAX];
    snprintf(blobs, sizeof blobs, "%.*s/blobs", (int)(length - tail), folder);
    return lies_below(path, blobs);
}

static dsmoe_status check_place(const shards *set, const char *path, dsmoe_error *error)
{
    char target[PATH_MAX];
    if (!realpath(path, target))
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", path,
                           strerror(errno));
    if (lies_below(target, set->folder) || lies_in_cache(target, set->folder)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: a symbolic link that leads out of the folder, to %s: put the file"
                       " itself here",
                       path, target);
}

/* Opens the next file. */
static dsmoe_status open_file(shards *set, const char *folder, const char *name, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, name);
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = check_place(set, path, error);
    if (status == DSMOE_OK) status = safetensors_open(path, &set->files[set->n_files], error);
    if (status == DSMOE_OK) set->n_files++;
    free(path);
    return status;
}

/* ---- the tensors of all files ------------------------------------------------------------- */

static int compare_tensors(const void *left, const void *right)
{
    const shard_tensor *a = left, *b = right;
    return strcmp(a->tensor->name, b->tensor->name);
}

static dsmoe_status merge_tensors(shards *set, dsmoe_error *error)
{
    size_t n_tensors = 0;
    for (size_t i = 0; i < set->n_files; i++) n_tensors += safetensors_count(set->files[i]);
    set->tensors = calloc(n_tensors + 1, sizeof *set->tensors); /* + 1: never of size 0 */
    if (!set->tensors)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", set->folder);
    for (size_t i = 0; i < set->n_files; i++)
        for (size_t j = 0; j < safetensors_count(set->files[i]); j++)
            set->tensors[set->n_tensors++] =
                (shard_tensor){.tensor = safetensors_at(set->files[i], j), .file = i};
    qsort(set->tensors, n_tensors, sizeof *set->tensors, compare_tensors);
    for (size_t i = 1; i < n_tensors; i++) {
        if (compare_tensors(&set->tensors[i - 1], &set->tensors[i]) == 0)
            return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor '%.128s' is also in %s",
                               shards_path(set, i), set->tensors[i].tensor->name,
                               shards_path(set, i - 1));
    }
    return DSMOE_OK;
}

/* ---- files named by an index -------------------------------------------------------------- */

/* Opens each file that the entries name, once. */
static dsmoe_status open_files(shards *set, const char *folder, shard_index *index,
                               dsmoe_error *error)
{
    size_t n_files = 0;
    for (size_t i = 0; i < index->n_entries; i++) n_files += shard_index_is_last_of_file(index, i);
    set->files = calloc(n_files, sizeof *set->files);
    if (!set->files) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    for (size_t i = 0; i < index->n_entries; i++) {
        index->entries[i].file = set->n_files;
        if (shard_index_is_last_of_file(index, i))
            STATUS_TRY(open_file(set, folder, index->entries[i].file_name, error));
    }
    return DSMOE_OK;
}

/* Index and files must have the same tensors, with the same total size. */
static dsmoe_status check_index(const shards *set, const shard_index *index, const char *path,
                                dsmoe_error *error)
{
    for (size_t i = 0; i < index->n_entries; i++) {
        const index_entry *entry = &index->entries[i];
        size_t at;
        if (!shards_find(set, entry->tensor, &at))
            return status_fail(
                error, DSMOE_ERROR_FORMAT, "%s: there is no tensor '%.128s', though %s names it",
                safetensors_path(set->files[entry->file]), entry->tensor, index_name);
        if (set->tensors[at].file != entry->file)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: weight_map: tensor '%.128s' is not in '%.128s' but in %s", path,
                               entry->tensor, entry->file_name, shards_path(set, at));
    }
    size_t total = 0; /* all of it is mapped, so the sum fits */
    for (size_t i = 0; i < set->n_tensors; i++) {
        const safetensors_tensor *tensor = set->tensors[i].tensor;
        total += tensor->size;
        if (!shard_index_names(index, tensor->name))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: tensor '%.128s' is not in the weight_map of %s",
                               shards_path(set, i), tensor->name, index_name);
    }
    if (shard_index_has_size(index, total)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: metadata: total_size is %.17g, but the tensors have %zu bytes", path,
                       json_node_number(index->total_size), total);
}

/* ---- opening ------------------------------------------------------------------------------ */

static dsmoe_status open_single(shards *set, const char *folder, dsmoe_error *error)
{
    set->files = calloc(1, sizeof *set->files);
    if (!set->files) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    STATUS_TRY(open_file(set, folder, single_name, error));
    return merge_tensors(set, error);
}

static dsmoe_status open_indexed(shards *set, const char *folder, const char *path,
                                 dsmoe_error *error)
{
    shard_index index;
    STATUS_TRY(check_place(set, path, error));
    STATUS_TRY(shard_index_read(&index, path, error));
    dsmoe_status status = open_files(set, folder, &index, error);
    if (status == DSMOE_OK) status = merge_tensors(set, error);
    if (status == DSMOE_OK) status = check_index(set, &index, path, error);
    shard_index_close(&index);
    return status;
}

/* Takes the single file if both are there, as the public loader does. */
static dsmoe_status open_folder(shards *set, const char *folder, dsmoe_error *error)
{
    STATUS_TRY(find_folder(set, folder, error));
    char *single = mapped_file_path(folder, single_name);
    char *index = mapped_file_path(folder, index_name);
    dsmoe_status status;
    if (!single || !index)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    else if (exists(single))
        status = open_single(set, folder, error);
    else if (exists(index))
        status = open_indexed(set, folder, index, error);
    else
        status = status_fail(error, DSMOE_ERROR_IO, "%s: there is no %s and no %s", folder,
                             single_name, index_name);
    free(single);
    free(index);
    return status;
}

dsmoe_status shards_open(const char *folder, shards **set, dsmoe_error *error)
{
    *set = NULL;
    shards *opened = calloc(1, sizeof *opened);
    if (!opened) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = open_folder(opened, folder, error);
    if (status == DSMOE_OK)
        *set = opened;
    else
        shards_close(opened);
    return status;
}

void shards_close(shards *set)
{
    if (!set) return;
    for (size_t i = 0; i < set->n_files; i++) safetensors_close(set->files[i]);
    free(set->files);
    free(set->tensors);
    free(set);
}

dsmoe_status shards_check_intact(const shards *set, dsmoe_error *error)
{
    for (size_t i = 0; i < set->n_files; i++)
        STATUS_TRY(safetensors_check_intact(set->files[i], error));
    return DSMOE_OK;
}

size_t shards_mapped_size(const shards *set)
{
    size_t size = 0;
    for (size_t i = 0; i < set->n_files; i++) size += safetensors_mapped_size(set->files[i]);
    return size;
}

size_t shards_count(const shards *set) { return set->n_tensors; }

const safetensors_tensor *shards_at(const shards *set, size_t index)
{
    return set->tensors[index].tensor;
}

const safetensors_tensor *shards_find(const shards *set, const char *name, size_t *index)
{
    safetensors_tensor named = {.name = name};
    shard_tensor key = {.tensor = &named};
    const shard_tensor *found =
        bsearch(&key, set->tensors, set->n_tensors, sizeof key, compare_tensors);
    if (!found) return NULL;
    if (index) *index = (size_t)(found - set->tensors);
    return found->tensor;
}

const char *shards_path(const shards *set, size_t index)
{
    return safetensors_path(set->files[set->tensors[index].file]);
}

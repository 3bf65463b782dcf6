/* folder_writer.c - a model folder in the public layout, file by file. */
#include "model/folder_writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "formats/safetensors_writer.h"
#include "model/config_write.h"

enum { OWN_MAX = 4 };
static const char index_name[] = FOLDER_WRITER_INDEX;
static const char generation_name[] = "generation_config.json";

typedef struct file_tensor {
    char *name;
    dsmoe_dtype dtype;
    int n_dims;
    int64_t shape[2];
    size_t size; /* bytes */
    int shard;   /* counted from 1 */
} file_tensor;

struct folder_writer {
    char *folder;
    bool created; /* the folder was created here */
    size_t shard_size;
    file_tensor *tensors;
    size_t n_tensors, capacity;
    size_t data_size;
    int n_shards;
    size_t shard_used; /* bytes in the last shard so far */
    /* The shard being written. */
    safetensors_writer *shard;
    size_t next;              /* the first tensor after it */
    size_t left;              /* bytes that the shard still lacks */
    const char *own[OWN_MAX]; /* files of the caller */
    int n_own;
};

static dsmoe_status out_of_memory(const char *folder, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Names that are written here, and names that a reader would take for a part of the model. */
static bool is_model_file(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name), n = sizeof suffix - 1;
    return !strcmp(name, "config.json") || !strcmp(name, generation_name) ||
           !strcmp(name, index_name) || (length >= n && !strcmp(name + length - n, suffix));
}

static dsmoe_status make_folder(folder_writer *w, dsmoe_error *error)
{
    w->created = mkdir(w->folder, 0777) == 0;
    if (w->created) return DSMOE_OK;
    if (errno != EEXIST)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the folder: %s", w->folder,
                           strerror(errno));
    DIR *list = opendir(w->folder);
    if (!list)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot use the folder: %s", w->folder,
                           strerror(errno));
    dsmoe_status status = DSMOE_OK;
    for (struct dirent *entry; status == DSMOE_OK && (entry = readdir(list));)
        if (is_model_file(entry->d_name))
            status = status_fail(error, DSMOE_ERROR_IO, "%s: already holds a model (%.64s)",
                                 w->folder, entry->d_name);
    closedir(list);
    return status;
}

static void free_writer(folder_writer *w)
{
    for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].name);
    free(w->tensors);
    free(w->folder);
    free(w);
}

dsmoe_status folder_writer_create(const char *folder, size_t shard_size, folder_writer **writer,
                                  dsmoe_error *error)
{
    *writer = NULL;
    folder_writer *made = calloc(1, sizeof *made);
    if (!made) return out_of_memory(folder, error);
    made->shard_size = shard_size;
    made->folder = strdup(folder);
    dsmoe_status status = made->folder ? make_folder(made, error) : out_of_memory(folder, error);
    if (status != DSMOE_OK) {
        free_writer(made);
        return status;
    }
    *writer = made;
    return DSMOE_OK;
}

/* ---- the tensors and their files ------------------------------------------------------------ */

void folder_writer_file_name(int file, int n_files, char name[FOLDER_WRITER_NAME])
{
    if (n_files == 1)
        snprintf(name, FOLDER_WRITER_NAME, "model.safetensors");
    else
        snprintf(name, FOLDER_WRITER_NAME, "model-%05d-of-%05d.safetensors", file, n_files);
}

static void shard_name(const folder_writer *w, int shard, char name[FOLDER_WRITER_NAME])
{
    folder_writer_file_name(shard, w->n_shards, name);
}

dsmoe_status folder_writer_declare(folder_writer *w, const char *name, dsmoe_dtype dtype,
                                   int n_dims, const int64_t *shape, dsmoe_error *error)
{
    if (w->n_tensors == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 256;
        file_tensor *grown = realloc(w->tensors, capacity * sizeof *grown);
        if (!grown) return out_of_memory(w->folder, error);
        w->tensors = grown;
        w->capacity = capacity;
    }
    file_tensor tensor = {.name = strdup(name), .dtype = dtype, .n_dims = n_dims};
    if (!tensor.name) return out_of_memory(w->folder, error);
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= tensor.shape[i] = shape[i];
    tensor.size = (size_t)dtype_bytes(dtype, n);
    if (w->n_shards == 0 || (w->shard_used > 0 && w->shard_used + tensor.size > w->shard_size)) {
        w->n_shards++;
        w->shard_used = 0;
    }
    tensor.shard = w->n_shards;
    w->shard_used += tensor.size;
    w->data_size += tensor.size;
    w->tensors[w->n_tensors++] = tensor;
    return DSMOE_OK;
}

void folder_writer_own(folder_writer *writer, const char *name)
{
    if (writer->n_own < OWN_MAX) writer->own[writer->n_own++] = name;
}

int folder_writer_file_count(const folder_writer *writer) { return writer->n_shards; }

size_t folder_writer_data_size(const folder_writer *writer) { return writer->data_size; }

/* ---- the weights ----------------------------------------------------------------------------- */

static dsmoe_status create_shard(folder_writer *w, int shard, dsmoe_error *error)
{
    char name[FOLDER_WRITER_NAME];
    shard_name(w, shard, name);
    char *path = mapped_file_path(w->folder, name);
    if (!path) return out_of_memory(w->folder, error);
    dsmoe_status status = safetensors_writer_create(path, &w->shard, error);
    free(path);
    /* The public loaders refuse a file without this entry. */
    if (status == DSMOE_OK) status = safetensors_writer_metadata(w->shard, "format", "pt", error);
    return status;
}

/* Opens the file that begins with tensor w->next. */
static dsmoe_status open_shard(folder_writer *w, dsmoe_error *error)
{
    int shard = w->tensors[w->next].shard;
    STATUS_TRY(create_shard(w, shard, error));
    for (; w->next < w->n_tensors && w->tensors[w->next].shard == shard; w->next++) {
        const file_tensor *t = &w->tensors[w->next];
        STATUS_TRY(safetensors_writer_declare(w->shard, t->name, safetensors_dtype_for(t->dtype),
                                              t->n_dims, t->shape, error));
        w->left += t->size;
    }
    return DSMOE_OK;
}

static dsmoe_status finish_shard(folder_writer *w, dsmoe_error *error)
{
    safetensors_writer *shard = w->shard;
    w->shard = NULL; /* freed in any case */
    return safetensors_writer_finish(shard, error);
}

dsmoe_status folder_writer_write(folder_writer *w, const void *bytes, size_t size,
                                 dsmoe_error *error)
{
    const unsigned char *at = bytes;
    while (size > 0) {
        if (!w->shard) STATUS_TRY(open_shard(w, error));
        size_t n = size < w->left ? size : w->left;
        STATUS_TRY(safetensors_writer_write(w->shard, at, n, error));
        at += n;
        size -= n;
        w->left -= n;
        if (w->left == 0) STATUS_TRY(finish_shard(w, error));
    }
    return DSMOE_OK;
}

/* ---- the JSON files -------------------------------------------------------------------------- */

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const file_tensor *)left)->name, ((const file_tensor *)right)->name);
}

/* Writes which tensor is in which file. */
static void put_index(FILE *text, const void *context)
{
    const folder_writer *w = context;
    fprintf(text, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n  \"weight_map\": {",
            w->data_size);
    for (size_t i = 0; i < w->n_tensors; i++) {
        char name[FOLDER_WRITER_NAME];
        shard_name(w, w->tensors[i].shard, name);
        fputs(i ? ",\n    " : "\n    ", text);
        json_write_string(text, w->tensors[i].name);
        fprintf(text, ": \"%s\"", name);
    }
    fputs("\n  }\n}\n", text);
}

/* Writes the index sorted by name. Leaves the list of tensors in that order. */
static dsmoe_status write_index(folder_writer *w, dsmoe_error *error)
{
    qsort(w->tensors, w->n_tensors, sizeof *w->tensors, compare_names);
    return partial_file_write_text(w->folder, index_name, put_index, w, error);
}

static void put_generation(FILE *text, const void *context)
{
    const folder_writer_words *words = context;
    fwrite(words->generation, 1, words->generation_length, text);
}

static dsmoe_status write_rest(folder_writer *w, const folder_writer_words *words,
                               dsmoe_error *error)
{
    if (w->shard || w->next < w->n_tensors)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: the data of the last tensors is missing", w->folder);
    if (w->n_shards > 1) STATUS_TRY(write_index(w, error));
    if (words->generation)
        STATUS_TRY(
            partial_file_write_text(w->folder, generation_name, put_generation, words, error));
    else
        STATUS_TRY(generation_config_write(w->folder, words->config, error));
    return config_write(w->folder, words->config, words->dtype, error);
}

dsmoe_status folder_writer_finish(folder_writer *writer, const folder_writer_words *words,
                                  dsmoe_error *error)
{
    dsmoe_status status = write_rest(writer, words, error);
    if (status == DSMOE_OK)
        free_writer(writer);
    else
        folder_writer_abandon(writer);
    return status;
}

static void remove_file(const folder_writer *w, const char *name)
{
    char *path = mapped_file_path(w->folder, name);
    if (path) unlink(path);
    free(path);
}

/* None of these files was there before. */
void folder_writer_abandon(folder_writer *w)
{
    if (!w) return;
    safetensors_writer_abandon(w->shard);
    for (int shard = 1; shard <= w->n_shards; shard++) {
        char name[FOLDER_WRITER_NAME];
        shard_name(w, shard, name);
        remove_file(w, name);
    }
    remove_file(w, index_name);
    remove_file(w, generation_name);
    remove_file(w, "config.json");
    for (int i = 0; i < w->n_own; i++) remove_file(w, w->own[i]);
    if (w->created) rmdir(w->folder);
    free_writer(w);
}

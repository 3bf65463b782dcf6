/* init.c - writes a freshly initialised model to a folder.
 *
 * The tensors are listed along weights_each and laid out over files; then numbers are made piece by
 * piece and go to disk, so that a model of any size takes the memory of two pieces. While one piece
 * is written the next is made. A number depends on the seed, the name of its tensor and its place
 * in it alone: neither threads nor pieces nor the other layers of the model change it. */
#include "model/init.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/threads.h"
#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "formats/narrow.h"
#include "formats/partial_file.h"
#include "formats/safetensors_writer.h"
#include "model/config.h"
#include "model/config_write.h"

enum {
    PIECE = 8 << 20, /* numbers that are made and written together */
    TASK = 64 << 10, /* numbers that one thread makes at a time */
    CHUNK = 4 << 10, /* numbers that are narrowed while they are in the nearest cache */
    SHARD_NAME = 48, /* bytes */
};
static const size_t public_shard_size = 5000000000; /* of the released model's files */
static const char index_name[] = "model.safetensors.index.json";

typedef struct init_tensor {
    char *name;
    weight_role role;
    int n_dims;
    int64_t shape[2];
    int64_t begin, n; /* numbers before it in the model, and of its own */
    int shard;        /* counted from 1 */
} init_tensor;

typedef struct init_job {
    const char *folder;
    const dsmoe_config *config;
    const init_options *options;
    init_tensor *tensors;
    size_t n_tensors, capacity;
    int64_t n_numbers; /* of all tensors */
    int n_shards;
    size_t shard_used; /* bytes in the last shard so far */
    size_t done;       /* bytes written */
    /* The piece being made, and the one before it, which is being written. */
    unsigned char *pieces[2];
    int turn;
    size_t pending; /* bytes of pieces[!turn] that are not written yet */
    safetensors_writer *writer;
} init_job;

static size_t dtype_size(dsmoe_dtype dtype) { return dtype == DSMOE_F32 ? 4 : 2; }

static safetensors_dtype file_dtype(dsmoe_dtype dtype)
{
    switch (dtype) {
    case DSMOE_F32: return SAFETENSORS_F32;
    case DSMOE_F16: return SAFETENSORS_F16;
    case DSMOE_BF16: return SAFETENSORS_BF16;
    }
    return SAFETENSORS_F32;
}

static dsmoe_status out_of_memory(const init_job *job, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", job->folder);
}

/* ---- what there is, and in which file ------------------------------------------------------- */

static dsmoe_status list_tensor(void *context, const weight_spec *spec, dsmoe_error *error)
{
    init_job *job = context;
    if (job->n_tensors == job->capacity) {
        size_t capacity = job->capacity ? 2 * job->capacity : 256;
        init_tensor *grown = realloc(job->tensors, capacity * sizeof *grown);
        if (!grown) return out_of_memory(job, error);
        job->tensors = grown;
        job->capacity = capacity;
    }
    init_tensor tensor = {.name = strdup(spec->name), .role = spec->role, .n_dims = spec->n_dims};
    if (!tensor.name) return out_of_memory(job, error);
    tensor.begin = job->n_numbers;
    tensor.n = 1;
    for (int i = 0; i < spec->n_dims; i++) {
        tensor.shape[i] = spec->shape[i];
        tensor.n *= spec->shape[i];
    }
    /* The configuration is checked: sizes of all tensors together fit. */
    size_t size = (size_t)tensor.n * dtype_size(job->options->dtype);
    if (job->n_shards == 0 ||
        (job->shard_used > 0 && job->shard_used + size > job->options->shard_size)) {
        job->n_shards++;
        job->shard_used = 0;
    }
    tensor.shard = job->n_shards;
    job->shard_used += size;
    job->n_numbers += tensor.n;
    job->tensors[job->n_tensors++] = tensor;
    return DSMOE_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The tensor's own random stream: a hash of its name (FNV-1a). */
static uint64_t name_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

void init_numbers(const dsmoe_config *config, uint64_t seed, const char *name, weight_role role,
                  int64_t first, int64_t n, float *out)
{
    uint64_t at = (uint64_t)first;
    float bound = (float)(1.0 / sqrt((double)config->hidden_size));
    float deviation = (float)config->initializer_range;
    switch (role) {
    case WEIGHT_LINEAR: rng_normal(out, n, seed, name_stream(name), at, deviation); break;
    case WEIGHT_ROUTER: rng_uniform(out, n, seed, name_stream(name), at, -bound, bound); break;
    case WEIGHT_NORM:
    case WEIGHT_BIAS:
        for (int64_t i = 0; i < n; i++) out[i] = role == WEIGHT_NORM ? 1.0f : 0.0f;
        break;
    }
}

/* The tensor that has a number of the model. */
static const init_tensor *find_tensor(const init_job *job, int64_t number)
{
    size_t low = 0, high = job->n_tensors;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(job->tensors[middle].begin <= number ? &low : &high) = middle;
    }
    return &job->tensors[low];
}

/* One stretch of the model's numbers, across the borders of tensors. */
typedef struct piece_job {
    init_job *job;
    int64_t first, n;
    dsmoe_status status; /* of writing the piece before */
    dsmoe_error *error;
} piece_job;

static dsmoe_status write_pending(init_job *job, dsmoe_error *error)
{
    size_t size = job->pending;
    job->pending = 0;
    job->done += size;
    return safetensors_writer_write(job->writer, job->pieces[!job->turn], size, error);
}

/* Task 0 writes the piece before; it comes first, since the disk is what one waits for. */
static void piece_task(void *context, int64_t task, int thread)
{
    (void)thread;
    piece_job *piece = context;
    init_job *job = piece->job;
    if (task == 0) {
        piece->status = write_pending(job, piece->error);
        return;
    }
    int64_t at = (task - 1) * TASK, end = at + TASK < piece->n ? at + TASK : piece->n, n;
    unsigned char *out = job->pieces[job->turn];
    float chunk[CHUNK];
    const init_tensor *tensor = find_tensor(job, piece->first + at);
    for (; at < end; at += n) {
        int64_t place = piece->first + at - tensor->begin;
        if (place == tensor->n) {
            tensor++;
            place = 0;
        }
        n = end - at < CHUNK ? end - at : CHUNK;
        if (n > tensor->n - place) n = tensor->n - place;
        init_numbers(job->config, job->options->seed, tensor->name, tensor->role, place, n, chunk);
        switch (job->options->dtype) {
        case DSMOE_F32: memcpy((float *)out + at, chunk, (size_t)n * sizeof *chunk); break;
        case DSMOE_F16: narrow_f16(chunk, n, (uint16_t *)out + at); break;
        case DSMOE_BF16: narrow_bf16(chunk, n, (uint16_t *)out + at); break;
        }
    }
}

static dsmoe_status report(const init_job *job, dsmoe_error *error)
{
    const init_options *o = job->options;
    double total = (double)job->n_numbers * (double)dtype_size(o->dtype);
    if (!o->progress || o->progress(o->context, (double)job->done, total)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: stopped", job->folder);
}

/* Makes and writes numbers [first, end) of the model. */
static dsmoe_status write_numbers(init_job *job, int64_t first, int64_t end, dsmoe_error *error)
{
    piece_job piece = {.job = job, .first = first, .error = error};
    for (; piece.first < end; piece.first += piece.n) {
        piece.n = end - piece.first < PIECE ? end - piece.first : PIECE;
        threads_for(job->options->n_threads, 1 + (piece.n + TASK - 1) / TASK, piece_task, &piece);
        STATUS_TRY(piece.status);
        job->pending = (size_t)piece.n * dtype_size(job->options->dtype);
        job->turn = !job->turn;
        STATUS_TRY(report(job, error));
    }
    return write_pending(job, error);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void shard_name(int shard, int n_shards, char name[SHARD_NAME])
{
    if (n_shards == 1)
        snprintf(name, SHARD_NAME, "model.safetensors");
    else
        snprintf(name, SHARD_NAME, "model-%05d-of-%05d.safetensors", shard, n_shards);
}

static dsmoe_status open_shard(init_job *job, int shard, dsmoe_error *error)
{
    char name[SHARD_NAME];
    shard_name(shard, job->n_shards, name);
    char *path = mapped_file_path(job->folder, name);
    if (!path) return out_of_memory(job, error);
    dsmoe_status status = safetensors_writer_create(path, &job->writer, error);
    free(path);
    /* Without this word the public loaders refuse a file. */
    if (status == DSMOE_OK)
        status = safetensors_writer_metadata(job->writer, "format", "pt", error);
    return status;
}

/* The tensors of one file from the list's place `first` on; *next is set behind them. */
static dsmoe_status write_shard(init_job *job, size_t first, size_t *next, dsmoe_error *error)
{
    int shard = job->tensors[first].shard;
    STATUS_TRY(open_shard(job, shard, error));
    size_t end = first;
    for (; end < job->n_tensors && job->tensors[end].shard == shard; end++) {
        const init_tensor *t = &job->tensors[end];
        STATUS_TRY(safetensors_writer_declare(job->writer, t->name, file_dtype(job->options->dtype),
                                              t->n_dims, t->shape, error));
    }
    const init_tensor *last = &job->tensors[end - 1];
    STATUS_TRY(write_numbers(job, job->tensors[first].begin, last->begin + last->n, error));
    safetensors_writer *writer = job->writer;
    job->writer = NULL; /* freed, whatever comes */
    STATUS_TRY(safetensors_writer_finish(writer, error));
    *next = end;
    return report(job, error);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const init_tensor *)left)->name, ((const init_tensor *)right)->name);
}

/* Which tensor lies in which file. */
static void put_index(FILE *text, const void *context)
{
    const init_job *job = context;
    fprintf(text, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n  \"weight_map\": {",
            job->done);
    for (size_t i = 0; i < job->n_tensors; i++) {
        char name[SHARD_NAME];
        shard_name(job->tensors[i].shard, job->n_shards, name);
        fputs(i ? ",\n    " : "\n    ", text);
        json_write_string(text, job->tensors[i].name);
        fprintf(text, ": \"%s\"", name);
    }
    fputs("\n  }\n}\n", text);
}

/* By name. Leaves the list in that order. */
static dsmoe_status write_index(init_job *job, dsmoe_error *error)
{
    qsort(job->tensors, job->n_tensors, sizeof *job->tensors, compare_names);
    return partial_file_write_text(job->folder, index_name, put_index, job, error);
}

/* config.json comes last: a folder that has it has all of the model. */
static dsmoe_status write_files(init_job *job, dsmoe_error *error)
{
    for (size_t next = 0; next < job->n_tensors;) STATUS_TRY(write_shard(job, next, &next, error));
    if (job->n_shards > 1) STATUS_TRY(write_index(job, error));
    STATUS_TRY(generation_config_write(job->folder, job->config, error));
    return config_write(job->folder, job->config, job->options->dtype, error);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Names that are written here, and names that a reader would take for a part of the model. */
static bool is_model_file(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name), n = sizeof suffix - 1;
    return !strcmp(name, "config.json") || !strcmp(name, "generation_config.json") ||
           !strcmp(name, index_name) || (length >= n && !strcmp(name + length - n, suffix));
}

/* Makes the folder, or sees that the one that is there has no model in it. */
static dsmoe_status make_folder(const char *folder, bool *created, dsmoe_error *error)
{
    *created = mkdir(folder, 0777) == 0;
    if (*created) return DSMOE_OK;
    if (errno != EEXIST)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the folder: %s", folder,
                           strerror(errno));
    DIR *list = opendir(folder);
    if (!list)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot use the folder: %s", folder,
                           strerror(errno));
    dsmoe_status status = DSMOE_OK;
    for (struct dirent *entry; status == DSMOE_OK && (entry = readdir(list));)
        if (is_model_file(entry->d_name))
            status = status_fail(error, DSMOE_ERROR_IO, "%s: already holds a model (%.64s)", folder,
                                 entry->d_name);
    closedir(list);
    return status;
}

static void remove_file(const init_job *job, const char *name)
{
    char *path = mapped_file_path(job->folder, name);
    if (path) unlink(path);
    free(path);
}

/* None of these names was there before. */
static void remove_files(const init_job *job, bool created)
{
    for (int shard = 1; shard <= job->n_shards; shard++) {
        char name[SHARD_NAME];
        shard_name(shard, job->n_shards, name);
        remove_file(job, name);
    }
    remove_file(job, index_name);
    remove_file(job, "generation_config.json");
    remove_file(job, "config.json");
    if (created) rmdir(job->folder);
}

static dsmoe_status init_run(init_job *job, dsmoe_error *error)
{
    STATUS_TRY(weights_each(job->config, NULL, list_tensor, job, error));
    size_t most = (size_t)(job->n_numbers < PIECE ? job->n_numbers : PIECE);
    for (int i = 0; i < 2; i++) {
        job->pieces[i] = memory_alloc(most * dtype_size(job->options->dtype));
        if (!job->pieces[i]) return out_of_memory(job, error);
    }
    bool created;
    STATUS_TRY(make_folder(job->folder, &created, error));
    dsmoe_status status = write_files(job, error);
    if (status == DSMOE_OK) return DSMOE_OK;
    safetensors_writer_abandon(job->writer);
    remove_files(job, created);
    return status;
}

dsmoe_status init_folder(const char *folder, const dsmoe_config *config,
                         const init_options *options, dsmoe_error *error)
{
    init_job job = {.folder = folder, .config = config, .options = options};
    dsmoe_status status = init_run(&job, error);
    for (size_t i = 0; i < job.n_tensors; i++) free(job.tensors[i].name);
    free(job.tensors);
    free(job.pieces[0]);
    free(job.pieces[1]);
    return status;
}

dsmoe_status dsmoe_model_init(const char *path, const dsmoe_config *config, dsmoe_dtype dtype,
                              uint64_t seed, int n_threads, dsmoe_progress_fn *progress,
                              void *context, dsmoe_error *error)
{
    if (!path || !*path || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no folder or no configuration given");
    if (dtype != DSMOE_F32 && dtype != DSMOE_F16 && dtype != DSMOE_BF16)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no type %d", (int)dtype);
    if (n_threads < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%d threads cannot work", n_threads);
    STATUS_TRY(config_check(config, error));
    init_options options = {
        dtype,    seed,   n_threads ? n_threads : threads_available(), public_shard_size,
        progress, context};
    return init_folder(path, config, &options, error);
}

/* checkpoint_write.c - a trainer to disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "formats/folder.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_writer.h"
#include "model/config_write.h"
#include "train/checkpoint_form.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* Numbers on their way to a file: gathered in blocks, for tensors may be many and small. */
enum { STREAM_BLOCK = 1 << 20 };
typedef struct number_stream {
    safetensors_writer *writer; /* NULL: only the hash is wanted */
    unsigned char *block;       /* [STREAM_BLOCK] */
    size_t used;
    hash_state hash;
} number_stream;

static number_stream stream_begin(safetensors_writer *writer, unsigned char *block)
{
    number_stream s = {.writer = writer, .block = block};
    hash_begin(&s.hash, 0);
    return s;
}

static dsmoe_status stream_flush(number_stream *s, dsmoe_error *error)
{
    if (s->used == 0) return DSMOE_OK;
    hash_add(&s->hash, s->block, s->used);
    size_t size = s->used;
    s->used = 0;
    return s->writer ? safetensors_writer_write(s->writer, s->block, size, error) : DSMOE_OK;
}

static dsmoe_status stream_put(number_stream *s, const float *numbers, int64_t n,
                               dsmoe_error *error)
{
    const unsigned char *next = (const unsigned char *)numbers;
    for (size_t size = (size_t)n * sizeof *numbers, part; size > 0; next += part, size -= part) {
        part = STREAM_BLOCK - s->used < size ? STREAM_BLOCK - s->used : size;
        memcpy(s->block + s->used, next, part);
        s->used += part;
        if (s->used == STREAM_BLOCK) STATUS_TRY(stream_flush(s, error));
    }
    return DSMOE_OK;
}

/* One of the trainer's arrays, parameter behind parameter, without the gaps. */
static dsmoe_status stream_put_all(number_stream *s, const dsmoe_trainer *trainer,
                                   const float *array, dsmoe_error *error)
{
    for (size_t i = 0; i < trainer->n_parameters; i++) {
        const parameter *p = &trainer->parameters[i];
        STATUS_TRY(stream_put(s, array + p->begin, p->n, error));
    }
    return DSMOE_OK;
}

/* ---- the two safetensors files --------------------------------------------------------------- */

typedef struct checkpoint_job {
    const dsmoe_trainer *trainer;
    const checkpoint_state *state;
    const char *folder, *tokenizer;
    unsigned char *block; /* [STREAM_BLOCK] */
} checkpoint_job;

static dsmoe_status out_of_memory(const checkpoint_job *job, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", job->folder);
}

/* Fills a safetensors file of the folder. */
typedef dsmoe_status fill_fn(checkpoint_job *job, safetensors_writer *writer, dsmoe_error *error);

static dsmoe_status write_safetensors(checkpoint_job *job, const char *name, fill_fn *fill,
                                      dsmoe_error *error)
{
    char *path = mapped_file_path(job->folder, name);
    if (!path) return out_of_memory(job, error);
    safetensors_writer *writer;
    dsmoe_status status = safetensors_writer_create(path, &writer, error);
    free(path);
    STATUS_TRY(status);
    status = fill(job, writer, error);
    if (status == DSMOE_OK) return safetensors_writer_finish(writer, error);
    safetensors_writer_abandon(writer);
    return status;
}

static dsmoe_status fill_model(checkpoint_job *job, safetensors_writer *writer, dsmoe_error *error)
{
    /* Without this word the public loaders refuse a file. */
    STATUS_TRY(safetensors_writer_metadata(writer, "format", "pt", error));
    const dsmoe_trainer *t = job->trainer;
    for (size_t i = 0; i < t->n_parameters; i++) {
        dsmoe_tensor_info info = dsmoe_model_tensor(t->model, i);
        STATUS_TRY(safetensors_writer_declare(writer, info.name, SAFETENSORS_F32, info.n_dims,
                                              info.shape, error));
    }
    number_stream stream = stream_begin(writer, job->block);
    STATUS_TRY(stream_put_all(&stream, t, t->weights, error));
    return stream_flush(&stream, error);
}

/* Metadata on its way to a file, and the hash of all values so far. */
typedef struct value_stream {
    safetensors_writer *writer;
    hash_state hash;
} value_stream;

static dsmoe_status put_value(value_stream *s, const char *key, const char *value,
                              dsmoe_error *error)
{
    hash_add(&s->hash, value, strlen(value) + 1);
    return safetensors_writer_metadata(s->writer, key, value, error);
}

static dsmoe_status put_bits(value_stream *s, const char *key, uint64_t bits, dsmoe_error *error)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%016" PRIx64, bits);
    return put_value(s, key, digits, error);
}

static dsmoe_status put_state(value_stream *s, const checkpoint_state *state, dsmoe_error *error)
{
    for (int i = 0; i < n_state_fields; i++) {
        const state_field *f = &state_fields[i];
        const char *field = (const char *)state + f->offset;
        if (f->kind == STATE_BITS) {
            uint64_t bits;
            memcpy(&bits, field, sizeof bits);
            STATUS_TRY(put_bits(s, f->key, bits, error));
            continue;
        }
        char digits[24];
        snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)field);
        STATUS_TRY(put_value(s, f->key, digits, error));
    }
    return DSMOE_OK;
}

/* The hash of a file that has just been written. */
static dsmoe_status put_file_hash(const checkpoint_job *job, value_stream *s, const char *key,
                                  const char *name, dsmoe_error *error)
{
    char *path = mapped_file_path(job->folder, name);
    if (!path) return out_of_memory(job, error);
    mapped_file file;
    dsmoe_status status = mapped_file_open(&file, path, error);
    if (status == DSMOE_OK)
        status = put_bits(s, key, checkpoint_hash(file.bytes, file.size), error);
    mapped_file_close(&file);
    free(path);
    return status;
}

static dsmoe_status put_moments(checkpoint_job *job, number_stream *stream, dsmoe_error *error)
{
    const dsmoe_trainer *t = job->trainer;
    STATUS_TRY(stream_put_all(stream, t, t->first_moment, error));
    STATUS_TRY(stream_put_all(stream, t, t->second_moment, error));
    return stream_flush(stream, error);
}

/* The hashes of the other files lie in this one, so it comes last; that of its own data has to be
 * known before the first byte of it. */
static dsmoe_status put_metadata(checkpoint_job *job, safetensors_writer *writer,
                                 dsmoe_error *error)
{
    value_stream values = {.writer = writer};
    hash_begin(&values.hash, 0);
    checkpoint_state state = *job->state;
    state.n_updates = job->trainer->n_updates;
    STATUS_TRY(put_value(&values, CHECKPOINT_FORMAT_KEY, CHECKPOINT_FORMAT, error));
    STATUS_TRY(put_state(&values, &state, error));
    STATUS_TRY(put_file_hash(job, &values, CHECKPOINT_CONFIG_HASH, "config.json", error));
    STATUS_TRY(put_file_hash(job, &values, CHECKPOINT_MODEL_HASH, "model.safetensors", error));
    number_stream moments = stream_begin(NULL, job->block);
    STATUS_TRY(put_moments(job, &moments, error));
    STATUS_TRY(put_bits(&values, CHECKPOINT_MOMENTS_HASH, hash_end(&moments.hash), error));
    return put_bits(&values, CHECKPOINT_STATE_HASH, hash_end(&values.hash), error);
}

static dsmoe_status fill_training(checkpoint_job *job, safetensors_writer *writer,
                                  dsmoe_error *error)
{
    STATUS_TRY(put_metadata(job, writer, error));
    int64_t n = 0;
    for (size_t i = 0; i < job->trainer->n_parameters; i++) n += job->trainer->parameters[i].n;
    STATUS_TRY(safetensors_writer_declare(writer, "first_moment", SAFETENSORS_F32, 1, &n, error));
    STATUS_TRY(safetensors_writer_declare(writer, "second_moment", SAFETENSORS_F32, 1, &n, error));
    number_stream stream = stream_begin(writer, job->block);
    return put_moments(job, &stream, error);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static dsmoe_status copy_tokenizer(const checkpoint_job *job, dsmoe_error *error)
{
    if (!job->tokenizer) return DSMOE_OK;
    STATUS_TRY(folder_copy(job->tokenizer, "tokenizer.json", job->folder, true, error));
    return folder_copy(job->tokenizer, "tokenizer_config.json", job->folder, false, error);
}

static dsmoe_status write_files(checkpoint_job *job, dsmoe_error *error)
{
    const dsmoe_config *config = &job->trainer->config;
    STATUS_TRY(folder_make(job->folder, error));
    STATUS_TRY(copy_tokenizer(job, error));
    STATUS_TRY(generation_config_write(job->folder, config, error));
    STATUS_TRY(config_write(job->folder, config, DSMOE_F32, error));
    STATUS_TRY(write_safetensors(job, "model.safetensors", fill_model, error));
    STATUS_TRY(write_safetensors(job, "training.safetensors", fill_training, error));
    return folder_sync(job->folder, error);
}

/* One of the same step must have been found wanting, or it would not be written anew. It makes way
 * when the new one is complete. */
static dsmoe_status put_in_place(const char *run, const char *partial, const char *path,
                                 int64_t step, dsmoe_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0) return folder_rename(partial, path, error);
    char old[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, ".", step, ".old", old, error));
    STATUS_TRY(folder_remove(old, checkpoint_files, n_checkpoint_files, error));
    STATUS_TRY(folder_rename(path, old, error));
    STATUS_TRY(folder_rename(partial, path, error));
    return folder_remove(old, checkpoint_files, n_checkpoint_files, error);
}

dsmoe_status checkpoint_write(const char *run, const dsmoe_trainer *trainer, const char *tokenizer,
                              const checkpoint_state *state, char path[CHECKPOINT_PATH],
                              dsmoe_error *error)
{
    char partial[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, ".", state->step, ".partial", partial, error));
    STATUS_TRY(checkpoint_path(run, "", state->step, "", path, error));
    checkpoint_job job = {.trainer = trainer,
                          .state = state,
                          .folder = partial,
                          .tokenizer = tokenizer,
                          .block = malloc(STREAM_BLOCK)};
    if (!job.block) return out_of_memory(&job, error);
    dsmoe_status status = write_files(&job, error);
    free(job.block);
    if (status == DSMOE_OK) status = put_in_place(run, partial, path, state->step, error);
    if (status != DSMOE_OK) {
        folder_remove(partial, checkpoint_files, n_checkpoint_files, NULL);
        return status;
    }
    folder_link(run, "latest", path + strlen(run) + 1);
    return DSMOE_OK;
}

/* checkpoint_write.c - writes a trainer to disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adapt/peft.h"
#include "base/dtype.h"
#include "formats/folder.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_writer.h"
#include "kernels/quantize.h"
#include "text/template_file.h"
#include "train/checkpoint_form.h"
#include "train/expert_choice.h"
#include "train/team.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* Writes bytes to a folder_writer or a safetensors_writer. */
typedef dsmoe_status sink_fn(void *to, const void *bytes, size_t size, dsmoe_error *error);

/* Writes numbers to a file through a buffer, because tensors can be many and small. */
enum { STREAM_BLOCK = 1 << 20 };
typedef struct number_stream {
    dsmoe_trainer *trainer;
    sink_fn *sink; /* NULL: only the hash is wanted */
    void *to;
    dsmoe_dtype dtype;    /* the type they are written in: see weight_dtype */
    unsigned char *block; /* [STREAM_BLOCK] */
    size_t used;
    hash_state hash;
} number_stream;

static number_stream stream_begin(dsmoe_trainer *trainer, sink_fn *sink, void *to,
                                  dsmoe_dtype dtype, unsigned char *block)
{
    number_stream s = {.trainer = trainer, .sink = sink, .to = to, .dtype = dtype, .block = block};
    hash_begin(&s.hash, 0);
    return s;
}

static dsmoe_status stream_flush(number_stream *s, dsmoe_error *error)
{
    if (s->used == 0) return DSMOE_OK;
    hash_add(&s->hash, s->block, s->used);
    size_t size = s->used;
    s->used = 0;
    return s->sink ? s->sink(s->to, s->block, size, error) : DSMOE_OK;
}

static dsmoe_status stream_put(void *to, size_t index, const float *numbers, int64_t n,
                               dsmoe_error *error)
{
    number_stream *s = to;
    dsmoe_dtype dtype = weight_dtype(s->trainer->parameters[index].role, s->dtype);
    const int64_t number_size = dtype_bytes(dtype, 1);
    for (int64_t part; n > 0; numbers += part, n -= part) {
        int64_t room = (int64_t)(STREAM_BLOCK - s->used) / number_size;
        part = room < n ? room : n;
        quantize_row(dtype, part, numbers, NULL, s->block + s->used);
        s->used += (size_t)(part * number_size);
        if (part == room) STATUS_TRY(stream_flush(s, error));
    }
    return DSMOE_OK;
}

/* Writes the trainer's weights or one of its moments, parameter after parameter, without gaps. */
static dsmoe_status stream_put_row(number_stream *s, trainer_row row, dsmoe_error *error)
{
    return team_read(s->trainer, row, stream_put, s, error);
}

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct checkpoint_job {
    dsmoe_trainer *trainer;
    const checkpoint_state *state;
    const checkpoint_options *options;
    const char *folder;
    unsigned char *block; /* [STREAM_BLOCK] */
    int n_model_files;
} checkpoint_job;

static dsmoe_status out_of_memory(const checkpoint_job *job, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", job->folder);
}

static dsmoe_status to_folder(void *to, const void *bytes, size_t size, dsmoe_error *error)
{
    return folder_writer_write(to, bytes, size, error);
}

static dsmoe_status fill_model(checkpoint_job *job, folder_writer *writer, dsmoe_error *error)
{
    dsmoe_trainer *t = job->trainer;
    dsmoe_dtype dtype = job->options->dtype;
    for (size_t i = 0; i < t->n_parameters; i++) {
        dsmoe_tensor_info info = dsmoe_trainer_parameter(t, i);
        STATUS_TRY(folder_writer_declare(writer, info.name,
                                         weight_dtype(t->parameters[i].role, dtype), info.n_dims,
                                         info.shape, error));
    }
    job->n_model_files = folder_writer_file_count(writer);
    number_stream stream = stream_begin(t, to_folder, writer, dtype, job->block);
    STATUS_TRY(stream_put_row(&stream, ROW_WEIGHTS, error));
    return stream_flush(&stream, error);
}

/* Writes low-rank additions as PEFT has them. Walking over all weights first makes sure that they have
 * arrived on every rank. */
static dsmoe_status write_adapter(checkpoint_job *job, dsmoe_error *error)
{
    const dsmoe_trainer *t = job->trainer;
    STATUS_TRY(team_read(job->trainer, ROW_WEIGHTS, NULL, NULL, error));
    const peft_words words = {.base = job->options->base,
                              .use_rslora = t->options.tuning->rslora,
                              .dtype = job->options->dtype};
    return peft_write_table(&t->low.adapter, t->model, job->folder, &words, error);
}

static dsmoe_status write_model(checkpoint_job *job, dsmoe_error *error)
{
    if (trainer_low_rank(job->trainer)) return write_adapter(job, error);
    size_t shard_size = job->options->shard_size;
    folder_writer *writer;
    STATUS_TRY(folder_writer_create(job->folder, shard_size ? shard_size : FOLDER_WRITER_SHARD_SIZE,
                                    &writer, error));
    dsmoe_status status = fill_model(job, writer, error);
    const folder_writer_words words = {.config = &job->trainer->config,
                                       .dtype = job->options->dtype};
    if (status == DSMOE_OK) return folder_writer_finish(writer, &words, error);
    folder_writer_abandon(writer);
    return status;
}

/* ---- the file for resuming ------------------------------------------------------------------- */

/* Writes metadata to a file and hashes all values so far. */
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
        if (f->kind != STATE_INTEGER) {
            uint64_t bits;
            memcpy(&bits, field, sizeof bits);
            if (bits == 0 && f->kind == STATE_BITS_OR_NONE) continue;
            STATUS_TRY(put_bits(s, f->key, bits, error));
            continue;
        }
        char digits[24];
        snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)field);
        STATUS_TRY(put_value(s, f->key, digits, error));
    }
    return DSMOE_OK;
}

static dsmoe_status put_interval(value_stream *s, const checkpoint_options *options,
                                 dsmoe_error *error)
{
    int64_t n = options->n_interval_layers;
    char *digits = malloc((size_t)n * 16 + 1);
    if (!digits)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu losses", (size_t)n);
    *digits = '\0';
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits[2];
        memcpy(bits, &options->interval_layers[i].aux_loss, sizeof *bits);
        memcpy(bits + 1, &options->interval_layers[i].device_loss, sizeof *bits);
        snprintf(digits + 16 * i, 17, "%08" PRIx32 "%08" PRIx32, bits[0], bits[1]);
    }
    dsmoe_status status = put_value(s, CHECKPOINT_INTERVAL, digits, error);
    free(digits);
    return status;
}

/* The hash of a file that has just been written. */
static dsmoe_status put_file_hash(const checkpoint_job *job, value_stream *s, const char *name,
                                  dsmoe_error *error)
{
    char key[CHECKPOINT_HASH_KEY], *path = mapped_file_path(job->folder, name);
    if (!path) return out_of_memory(job, error);
    checkpoint_hash_key(name, key);
    mapped_file file;
    dsmoe_status status = mapped_file_open(&file, path, error);
    if (status == DSMOE_OK)
        status = put_bits(s, key, checkpoint_hash(HASH_XXH64, file.bytes, file.size), error);
    if (status == DSMOE_OK && !mapped_file_intact(&file)) status = mapped_file_lost(path, error);
    mapped_file_close(&file);
    free(path);
    return status;
}

static dsmoe_status put_file_hashes(const checkpoint_job *job, value_stream *s, dsmoe_error *error)
{
    char name[FOLDER_WRITER_NAME], digits[24];
    snprintf(digits, sizeof digits, "%d", job->n_model_files);
    STATUS_TRY(put_value(s, CHECKPOINT_FILES, digits, error));
    for (int i = 0; checkpoint_hashed_file(i, job->n_model_files, name); i++)
        STATUS_TRY(put_file_hash(job, s, name, error));
    return DSMOE_OK;
}

/* The flat tensors of training.safetensors: the weights too, if the model's files do not hold them
 * exactly; an adapter's files have them in another order. */
static int row_count(const checkpoint_job *job)
{
    bool is_exact = job->options->dtype == DSMOE_F32 && !trainer_low_rank(job->trainer);
    return is_exact ? ROW_WEIGHTS : N_ROWS;
}

static dsmoe_status put_rows(const checkpoint_job *job, number_stream *stream, dsmoe_error *error)
{
    for (int i = 0; i < row_count(job); i++)
        STATUS_TRY(stream_put_row(stream, (trainer_row)i, error));
    return stream_flush(stream, error);
}

/* This file holds the hashes of the other files, so it is written last. The hash of its own data must be
 * known before the first byte of that data is written. */
static dsmoe_status put_metadata(checkpoint_job *job, safetensors_writer *writer,
                                 dsmoe_error *error)
{
    value_stream values = {.writer = writer};
    hash_begin(&values.hash, 0);
    checkpoint_state state = *job->state;
    state.n_updates = job->trainer->n_updates;
    STATUS_TRY(put_value(&values, CHECKPOINT_FORMAT_KEY, CHECKPOINT_FORMAT, error));
    STATUS_TRY(put_state(&values, &state, error));
    STATUS_TRY(put_interval(&values, job->options, error));
    STATUS_TRY(put_value(&values, CHECKPOINT_KERNELS_KEY, state.kernels, error));
    if (job->options->base) {
        STATUS_TRY(put_value(&values, CHECKPOINT_BASE, job->options->base, error));
        STATUS_TRY(put_bits(&values, CHECKPOINT_BASE_HASH, state.base_hash, error));
    }
    STATUS_TRY(put_file_hashes(job, &values, error));
    number_stream numbers = stream_begin(job->trainer, NULL, NULL, DSMOE_F32, job->block);
    STATUS_TRY(put_rows(job, &numbers, error));
    STATUS_TRY(put_bits(&values, CHECKPOINT_NUMBERS_HASH, hash_end(&numbers.hash), error));
    return put_bits(&values, CHECKPOINT_STATE_HASH, hash_end(&values.hash), error);
}

static dsmoe_status to_safetensors(void *to, const void *bytes, size_t size, dsmoe_error *error)
{
    return safetensors_writer_write(to, bytes, size, error);
}

static dsmoe_status fill_training(checkpoint_job *job, safetensors_writer *writer,
                                  dsmoe_error *error)
{
    STATUS_TRY(put_metadata(job, writer, error));
    int64_t n = 0;
    for (size_t i = 0; i < job->trainer->n_parameters; i++) n += job->trainer->parameters[i].n;
    for (int i = 0; i < row_count(job); i++)
        STATUS_TRY(
            safetensors_writer_declare(writer, checkpoint_rows[i], SAFETENSORS_F32, 1, &n, error));
    number_stream stream =
        stream_begin(job->trainer, to_safetensors, writer, DSMOE_F32, job->block);
    return put_rows(job, &stream, error);
}

static dsmoe_status write_training(checkpoint_job *job, dsmoe_error *error)
{
    char *path = mapped_file_path(job->folder, "training.safetensors");
    if (!path) return out_of_memory(job, error);
    safetensors_writer *writer;
    dsmoe_status status = safetensors_writer_create(path, &writer, error);
    free(path);
    STATUS_TRY(status);
    status = fill_training(job, writer, error);
    if (status == DSMOE_OK) return safetensors_writer_finish(writer, error);
    safetensors_writer_abandon(writer);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static dsmoe_status copy_tokenizer(const checkpoint_job *job, dsmoe_error *error)
{
    const char *from = job->options->tokenizer;
    if (!from) return DSMOE_OK;
    STATUS_TRY(folder_copy(from, "tokenizer.json", job->folder, true, error));
    STATUS_TRY(folder_copy(from, "tokenizer_config.json", job->folder, false, error));
    return folder_copy(from, TEMPLATE_FILE_NAME, job->folder, false, error);
}

static dsmoe_status write_files(checkpoint_job *job, dsmoe_error *error)
{
    STATUS_TRY(folder_remove(job->folder, checkpoint_owns, error)); /* from an interrupted write */
    STATUS_TRY(folder_make(job->folder, error));
    STATUS_TRY(copy_tokenizer(job, error));
    STATUS_TRY(write_model(job, error));
    const dsmoe_tuning *tuning = job->trainer->options.tuning;
    if (tuning && tuning->train == DSMOE_TRAIN_EXPERTS)
        STATUS_TRY(expert_choice_put(job->folder, &job->trainer->config, tuning->experts, error));
    STATUS_TRY(write_training(job, error));
    return folder_sync(job->folder, error);
}

/* An existing checkpoint of the same step was found unusable, or it would not be written again. It is
 * removed when the new one is complete. */
static dsmoe_status put_in_place(const char *run, const char *partial, const char *path,
                                 int64_t step, dsmoe_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0) return folder_rename(partial, path, error);
    char old[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, ".", step, ".old", old, error));
    STATUS_TRY(folder_remove(old, checkpoint_owns, error));
    STATUS_TRY(folder_rename(path, old, error));
    STATUS_TRY(folder_rename(partial, path, error));
    return folder_remove(old, checkpoint_owns, error);
}

dsmoe_status checkpoint_write(const char *run, dsmoe_trainer *trainer,
                              const checkpoint_options *options, const checkpoint_state *state,
                              char path[CHECKPOINT_PATH], dsmoe_error *error)
{
    char partial[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, ".", state->step, ".partial", partial, error));
    STATUS_TRY(checkpoint_path(run, "", state->step, "", path, error));
    checkpoint_job job = {.trainer = trainer,
                          .state = state,
                          .options = options,
                          .folder = partial,
                          .block = malloc(STREAM_BLOCK)};
    if (!job.block) return out_of_memory(&job, error);
    dsmoe_status status = write_files(&job, error);
    free(job.block);
    if (status == DSMOE_OK) status = put_in_place(run, partial, path, state->step, error);
    if (status != DSMOE_OK) {
        folder_remove(partial, checkpoint_owns, NULL);
        return status;
    }
    folder_link(run, "latest", path + strlen(run) + 1);
    return DSMOE_OK;
}

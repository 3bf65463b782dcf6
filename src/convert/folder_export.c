/* folder_export.c - writes a model folder tensor by tensor.
 *
 * GGUF files have vectors and routers in float32, whatever the type of the matrices. If types are
 * kept, the folder gets them in the type of the matrices, provided that holds them exactly. So a
 * file that was made from a folder becomes that folder again, bit by bit. */
#include "convert/folder_export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/type_changes.h"
#include "formats/mapped_file.h"
#include "model/folder_writer.h"
#include "model/row_pump.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

static const char *const tokenizer_names[] = {"tokenizer.json", "tokenizer_config.json"};
enum { N_TOKENIZER_NAMES = sizeof tokenizer_names / sizeof *tokenizer_names };

typedef struct export_job {
    const folder_export *e;
    dsmoe_dtype *types; /* [n_tensors] */
    dsmoe_dtype most;   /* the type of most numbers in matrices */
    folder_writer *writer;
    row_pump *pump;
    size_t now; /* the tensor being written */
} export_job;

static dsmoe_status out_of_memory(const folder_export *e, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", e->folder);
}

/* ---- types ----------------------------------------------------------------------------------- */

static bool is_matrix(const source_tensor *t) { return t->role == WEIGHT_LINEAR; }

/* Matrices come first, as they decide the type of the rest. */
static dsmoe_status keep_matrix_types(export_job *job, dsmoe_error *error)
{
    const source *s = job->e->source;
    int64_t counts[N_DTYPES] = {0};
    for (size_t i = 0; i < s->n_tensors; i++) {
        const source_tensor *t = &s->tensors[i];
        if (!is_matrix(t)) continue;
        dsmoe_dtype type = source_dtype(s, t);
        if (dtype_is_block(type))
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "%s: %s is %s, which a folder cannot hold; choose a type: f32, f16 "
                               "or bf16",
                               s->name, t->name, dsmoe_dtype_name(type));
        job->types[i] = type;
        counts[type] += t->n_rows * t->n_in;
    }
    for (int type = 0; type < N_DTYPES; type++)
        if (counts[type] > counts[job->most]) job->most = (dsmoe_dtype)type;
    return DSMOE_OK;
}

static dsmoe_status keep_other_types(export_job *job, dsmoe_error *error)
{
    const source *s = job->e->source;
    float *scratch = malloc((size_t)s->longest * sizeof *scratch);
    if (!scratch) return out_of_memory(job->e, error);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const source_tensor *t = &s->tensors[i];
        if (is_matrix(t)) continue;
        dsmoe_dtype stored = t->stored;
        bool narrow = s->as_gguf && stored == DSMOE_F32 && source_fits(s, t, job->most, scratch);
        job->types[i] = narrow ? job->most : dtype_is_block(stored) ? DSMOE_F32 : stored;
    }
    free(scratch);
    return DSMOE_OK;
}

static dsmoe_status choose_types(export_job *job, dsmoe_error *error)
{
    const folder_export *e = job->e;
    job->types = calloc(e->source->n_tensors, sizeof *job->types);
    if (!job->types) return out_of_memory(e, error);
    job->most = e->as_is ? DSMOE_F32 : e->type;
    for (size_t i = 0; !e->as_is && i < e->source->n_tensors; i++) job->types[i] = e->type;
    if (!e->as_is) return DSMOE_OK;
    STATUS_TRY(keep_matrix_types(job, error));
    return keep_other_types(job, error);
}

static void count_changes(const export_job *job)
{
    const source *s = job->e->source;
    if (!job->e->changes) return;
    *job->e->changes = (dsmoe_type_changes){0};
    for (size_t i = 0; i < s->n_tensors; i++)
        type_changes_add(job->e->changes, source_dtype(s, &s->tensors[i]), job->types[i]);
}

/* ---- weights --------------------------------------------------------------------------------- */

static dsmoe_status declare_tensors(export_job *job, dsmoe_error *error)
{
    const source *s = job->e->source;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const source_tensor *t = &s->tensors[i];
        const int64_t shape[] = {t->n_rows, t->n_in};
        STATUS_TRY(folder_writer_declare(job->writer, t->name, job->types[i], t->n_dims,
                                         shape + 2 - t->n_dims, error));
    }
    return DSMOE_OK;
}

static bool make_row(void *context, int64_t row, float *scratch, void *out)
{
    const export_job *job = context;
    source_form form = {.as_gguf = false, .type = job->types[job->now]};
    return source_make_row(job->e->source, &job->e->source->tensors[job->now], row, form, scratch,
                           out);
}

static dsmoe_status write_tensor(export_job *job, dsmoe_error *error)
{
    const source_tensor *t = &job->e->source->tensors[job->now];
    dsmoe_dtype type = job->types[job->now];
    row_pump_tensor tensor = {.n_rows = t->n_rows,
                              .n = t->n_in,
                              .row_size = (size_t)dtype_bytes(type, t->n_in),
                              .make = make_row,
                              .context = job};
    int64_t bad_row;
    STATUS_TRY(row_pump_run(job->pump, &tensor, &bad_row, error));
    if (bad_row < 0) return DSMOE_OK;
    return source_fail_row(job->e->source, t, bad_row, type, error);
}

static dsmoe_status write_bytes(void *to, const void *bytes, size_t size, dsmoe_error *error)
{
    return folder_writer_write(to, bytes, size, error);
}

static dsmoe_status write_tensors(export_job *job, dsmoe_error *error)
{
    const folder_export *e = job->e;
    STATUS_TRY(declare_tensors(job, error));
    row_pump_options options = {.path = e->folder,
                                .write = write_bytes,
                                .to = job->writer,
                                .n_threads = e->n_threads,
                                .longest = e->source->longest,
                                .total = folder_writer_data_size(job->writer),
                                .progress = e->progress,
                                .context = e->context};
    STATUS_TRY(row_pump_create(&options, &job->pump, error));
    for (; job->now < e->source->n_tensors; job->now++) STATUS_TRY(write_tensor(job, error));
    STATUS_TRY(row_pump_flush(job->pump, error));
    /* If the source changed meanwhile, its numbers may be wrong. */
    return source_check_intact(e->source, error);
}

/* ---- the tokenizer --------------------------------------------------------------------------- */

static dsmoe_status write_tokenizer(export_job *job, dsmoe_error *error)
{
    const folder_export *e = job->e;
    if (!e->tokenizer) return DSMOE_OK;
    tokenizer_files files;
    STATUS_TRY(tokenizer_files_open(&files, e->tokenizer, error));
    dsmoe_status status = e->form ? tokenizer_files_set_form(&files, e->form, error) : DSMOE_OK;
    for (int i = 0; i < N_TOKENIZER_NAMES; i++) folder_writer_own(job->writer, tokenizer_names[i]);
    dsmoe_tokenizer *tokenizer = NULL; /* a GGUF file's tokenizer is not checked yet */
    if (status == DSMOE_OK)
        status = tokenizer_parse(&files.text, files.config.bytes ? &files.config : NULL, &tokenizer,
                                 error);
    dsmoe_tokenizer_free(tokenizer);
    if (status == DSMOE_OK) status = tokenizer_files_write(&files, e->folder, error);
    tokenizer_files_close(&files);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static dsmoe_status write_folder(export_job *job, dsmoe_error *error)
{
    const folder_export *e = job->e;
    STATUS_TRY(choose_types(job, error));
    count_changes(job);
    STATUS_TRY(folder_writer_create(e->folder, e->shard_size, &job->writer, error));
    STATUS_TRY(write_tokenizer(job, error));
    STATUS_TRY(write_tensors(job, error));
    const folder_writer_words words = {&e->source->config, job->most, e->generation,
                                       e->generation_length};
    folder_writer *writer = job->writer;
    job->writer = NULL; /* folder_writer_finish frees it */
    return folder_writer_finish(writer, &words, error);
}

dsmoe_status folder_export_write(const folder_export *e, dsmoe_error *error)
{
    export_job job = {.e = e};
    dsmoe_status status = write_folder(&job, error);
    folder_writer_abandon(job.writer);
    row_pump_free(job.pump);
    free(job.types);
    return status;
}

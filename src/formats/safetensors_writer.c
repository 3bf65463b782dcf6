/* safetensors_writer.c - a safetensors file written front to back.
 *
 * The header is text that grows with every declaration until the first byte of data. It is padded so
 * that the data begins on a cache line: a reader that maps the file then finds tensors aligned, if
 * their sizes allow it. */
#include "formats/safetensors_writer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "formats/json.h"
#include "formats/json_write.h"
#include "formats/partial_file.h"

enum { LENGTH_SIZE = 8, MAX_HEADER_SIZE = 100000000, DATA_ALIGNMENT = 64 };

struct safetensors_writer {
    char *path;
    partial_file file;
    FILE *metadata, *tensors; /* members of the header's objects, in memory */
    char *metadata_text, *tensors_text;
    size_t metadata_size, tensors_size;
    bool has_metadata, has_tensors;
    bool broken_text;         /* something declared is not UTF-8 */
    bool begun;               /* the header is written: nothing more can be declared */
    bool failed;              /* something was not written: the file can no longer be completed */
    size_t declared, written; /* bytes of data */
};

/* ---- life ---------------------------------------------------------------------------------- */

static void writer_free(safetensors_writer *writer)
{
    if (writer->metadata) fclose(writer->metadata);
    if (writer->tensors) fclose(writer->tensors);
    free(writer->metadata_text);
    free(writer->tensors_text);
    free(writer->path);
    free(writer);
}

dsmoe_status safetensors_writer_create(const char *path, safetensors_writer **writer,
                                       dsmoe_error *error)
{
    *writer = NULL;
    safetensors_writer *created = calloc(1, sizeof *created);
    if (!created) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    created->path = strdup(path);
    created->metadata = open_memstream(&created->metadata_text, &created->metadata_size);
    created->tensors = open_memstream(&created->tensors_text, &created->tensors_size);
    dsmoe_status status;
    if (!created->path || !created->metadata || !created->tensors)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    else
        status = partial_file_create(&created->file, path, error);
    if (status != DSMOE_OK) {
        writer_free(created);
        return status;
    }
    *writer = created;
    return DSMOE_OK;
}

void safetensors_writer_abandon(safetensors_writer *writer)
{
    if (!writer) return;
    partial_file_abandon(&writer->file);
    writer_free(writer);
}

/* ---- the header ---------------------------------------------------------------------------- */

static dsmoe_status check_declarable(const safetensors_writer *writer, const char *what,
                                     const char *name, dsmoe_error *error)
{
    if (!writer->begun) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "%s: %s '%s' comes too late: the data has begun", writer->path, what, name);
}

static void writer_text(safetensors_writer *writer, FILE *to, const char *text)
{
    writer->broken_text = writer->broken_text || !utf8_is_whole(text, strlen(text));
    json_write_string(to, text);
}

dsmoe_status safetensors_writer_declare(safetensors_writer *writer, const char *name,
                                        safetensors_dtype dtype, int n_dims, const int64_t *shape,
                                        dsmoe_error *error)
{
    STATUS_TRY(check_declarable(writer, "tensor", name, error));
    if (!strcmp(name, "__metadata__"))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: a tensor cannot have the name '__metadata__'", writer->path);
    if (n_dims < 0 || n_dims > SAFETENSORS_MAX_DIMS)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: tensor '%s' has %d dimensions, outside 0 to %d", writer->path, name,
                           n_dims, SAFETENSORS_MAX_DIMS);
    size_t size = safetensors_dtype_size(dtype), end;
    bool fits = true;
    for (int i = 0; i < n_dims; i++)
        fits = fits && shape[i] >= 0 && checked_mul_size(size, (size_t)shape[i], &size);
    if (!fits || !checked_add_size(writer->declared, size, &end) || end > INT64_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: tensor '%s': its shape does not fit",
                           writer->path, name);

    FILE *text = writer->tensors;
    if (writer->has_tensors) fputc(',', text);
    writer_text(writer, text, name);
    fprintf(text, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(dtype));
    for (int i = 0; i < n_dims; i++) fprintf(text, "%s%lld", i ? "," : "", (long long)shape[i]);
    fprintf(text, "],\"data_offsets\":[%zu,%zu]}", writer->declared, end);
    writer->has_tensors = true;
    writer->declared = end;
    return DSMOE_OK;
}

dsmoe_status safetensors_writer_metadata(safetensors_writer *writer, const char *key,
                                         const char *value, dsmoe_error *error)
{
    STATUS_TRY(check_declarable(writer, "metadata key", key, error));
    if (writer->has_metadata) fputc(',', writer->metadata);
    writer_text(writer, writer->metadata, key);
    fputc(':', writer->metadata);
    writer_text(writer, writer->metadata, value);
    writer->has_metadata = true;
    return DSMOE_OK;
}

/* Length and header in one text, padded up to the data. The caller frees it. NULL if out of memory. */
static char *join_header(safetensors_writer *writer, size_t *size)
{
    bool complete = fflush(writer->metadata) == 0 && !ferror(writer->metadata) &&
                    fflush(writer->tensors) == 0 && !ferror(writer->tensors);
    if (!complete) return NULL;
    char *bytes;
    FILE *text = open_memstream(&bytes, size);
    if (!text) return NULL;
    fprintf(text, "%*s{", LENGTH_SIZE, "");
    if (writer->has_metadata)
        fprintf(text, "\"__metadata__\":{%s}%s", writer->metadata_text,
                writer->has_tensors ? "," : "");
    fwrite(writer->tensors_text, 1, writer->tensors_size, text);
    fputc('}', text);
    while (fflush(text) == 0 && *size % DATA_ALIGNMENT) fputc(' ', text);
    complete = !ferror(text);
    if (fclose(text) != 0 || !complete) {
        free(bytes);
        return NULL;
    }
    uint64_t length = *size - LENGTH_SIZE;
    for (int i = 0; i < LENGTH_SIZE; i++) bytes[i] = (char)(length >> (8 * i));
    return bytes;
}

/* Names come from other files: they must be UTF-8, and no name may occur twice, or no reader would
 * accept the header. */
static dsmoe_status check_header(const safetensors_writer *writer, const char *text, size_t length,
                                 dsmoe_error *error)
{
    if (length > MAX_HEADER_SIZE)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: a header of %zu bytes is longer than the %d that are allowed",
                           writer->path, length, MAX_HEADER_SIZE);
    if (writer->broken_text)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: a name or its metadata is not UTF-8, which the header must be",
                           writer->path);
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, writer->path, &root, error));
    json_node_free(root);
    return DSMOE_OK;
}

static dsmoe_status begin_data(safetensors_writer *writer, dsmoe_error *error)
{
    if (writer->begun) return DSMOE_OK;
    size_t size;
    char *header = join_header(writer, &size);
    if (!header) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", writer->path);
    dsmoe_status status = check_header(writer, header + LENGTH_SIZE, size - LENGTH_SIZE, error);
    if (status == DSMOE_OK) status = partial_file_write(&writer->file, header, size, error);
    free(header);
    writer->begun = true;
    return status;
}

/* ---- the data ------------------------------------------------------------------------------ */

static dsmoe_status write_data(safetensors_writer *writer, const void *bytes, size_t size,
                               dsmoe_error *error)
{
    if (writer->failed)
        return status_fail(error, DSMOE_ERROR_IO, "%s: an earlier write failed", writer->path);
    STATUS_TRY(begin_data(writer, error));
    if (size > writer->declared - writer->written)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: %zu bytes after the last of the %zu declared ones", writer->path,
                           size - (writer->declared - writer->written), writer->declared);
    STATUS_TRY(partial_file_write(&writer->file, bytes, size, error));
    writer->written += size;
    return DSMOE_OK;
}

dsmoe_status safetensors_writer_write(safetensors_writer *writer, const void *bytes, size_t size,
                                      dsmoe_error *error)
{
    dsmoe_status status = write_data(writer, bytes, size, error);
    if (status != DSMOE_OK) writer->failed = true;
    return status;
}

dsmoe_status safetensors_writer_finish(safetensors_writer *writer, dsmoe_error *error)
{
    dsmoe_status status = write_data(writer, NULL, 0, error); /* at least the header */
    if (status == DSMOE_OK && writer->written < writer->declared)
        status = status_fail(error, DSMOE_ERROR_ARGUMENT,
                             "%s: only %zu of %zu declared bytes were written", writer->path,
                             writer->written, writer->declared);
    if (status == DSMOE_OK) status = partial_file_finish(&writer->file, error);
    safetensors_writer_abandon(writer);
    return status;
}

/* gguf_writer.h - a GGUF file written front to back, without holding it in memory.
 *
 * Metadata and tensors are declared first, in the order that they will have in the file; then the
 * bytes of the tensors follow in that order in pieces of any size. The writer adds the padding between
 * tensors. The file appears under its name only when it is complete and synced (see partial_file.h). */
#ifndef DSMOE_FORMATS_GGUF_WRITER_H
#define DSMOE_FORMATS_GGUF_WRITER_H

#include "formats/gguf.h"

typedef struct gguf_writer gguf_writer;

dsmoe_status gguf_writer_create(const char *path, gguf_writer **writer, dsmoe_error *error);

/* Metadata; call before the first byte of data. The first failure (out of memory, a key twice) is kept
 * and reported by the next function that returns a status, so these calls need no checks. */
void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_f32(gguf_writer *writer, const char *key, float value);
void gguf_writer_bool(gguf_writer *writer, const char *key, bool value);
void gguf_writer_string(gguf_writer *writer, const char *key, const char *bytes, size_t length);
void gguf_writer_i32_array(gguf_writer *writer, const char *key, const int32_t *values, size_t n);
void gguf_writer_strings(gguf_writer *writer, const char *key, const gguf_string *values, size_t n);

/* Call before the first byte of data. `shape` begins with the slowest dimension. */
dsmoe_status gguf_writer_declare(gguf_writer *writer, const char *name, dsmoe_dtype type,
                                 int n_dims, const int64_t *shape, dsmoe_error *error);
/* Bytes of all declared tensors together, without padding: for progress bars. */
size_t gguf_writer_data_size(const gguf_writer *writer);

/* Writes the next bytes of data, in the order of declaration. A call must not go past the end of a
 * tensor. */
dsmoe_status gguf_writer_write(gguf_writer *writer, const void *bytes, size_t size,
                               dsmoe_error *error);
/* Completes the file: every declared byte must have been written. Syncs, renames, frees. After a
 * failure the partial file is removed. */
dsmoe_status gguf_writer_finish(gguf_writer *writer, dsmoe_error *error);
/* Gives up: removes the partial file and frees. NULL is allowed. */
void gguf_writer_abandon(gguf_writer *writer);

#endif

/* safetensors_writer.h - a safetensors file written front to back, without holding it in memory.
 *
 * All tensors are declared first, which fixes the header; then their bytes follow in that order in
 * pieces of any size. The file appears under its name only when it is complete and synced; until
 * then it is called NAME.partial. */
#ifndef DSMOE_FORMATS_SAFETENSORS_WRITER_H
#define DSMOE_FORMATS_SAFETENSORS_WRITER_H

#include "formats/safetensors.h"

typedef struct safetensors_writer safetensors_writer;

dsmoe_status safetensors_writer_create(const char *path, safetensors_writer **writer,
                                       dsmoe_error *error);
/* Call before the first byte of data. `shape` is copied. */
dsmoe_status safetensors_writer_declare(safetensors_writer *writer, const char *name,
                                        safetensors_dtype dtype, int n_dims, const int64_t *shape,
                                        dsmoe_error *error);
/* Adds a key to __metadata__; call before the first byte of data. */
dsmoe_status safetensors_writer_metadata(safetensors_writer *writer, const char *key,
                                         const char *value, dsmoe_error *error);
/* Writes the next bytes of data, in the order of declaration. One call may span several tensors. */
dsmoe_status safetensors_writer_write(safetensors_writer *writer, const void *bytes, size_t size,
                                      dsmoe_error *error);
/* Completes the file: every declared byte must have been written. Syncs, renames, frees. After a
 * failure the partial file is removed. */
dsmoe_status safetensors_writer_finish(safetensors_writer *writer, dsmoe_error *error);
/* Gives up: removes the partial file and frees. NULL is allowed. */
void safetensors_writer_abandon(safetensors_writer *writer);

#endif

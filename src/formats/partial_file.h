/* partial_file.h - a file that appears under its name only when it is complete and on the disk.
 *
 * Until then it is called NAME.partial. A file called NAME is complete, whatever happened to the
 * program, the disk or the machine meanwhile. */
#ifndef DSMOE_FORMATS_PARTIAL_FILE_H
#define DSMOE_FORMATS_PARTIAL_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

typedef struct partial_file {
    char *path, *partial; /* the final name, and the name until then */
    int descriptor;       /* -1 once closed */
    int lock;             /* a second descriptor, which holds the lock until the rename; or -1 */
    size_t size;          /* written so far */
} partial_file;

/* Overwrites a partial file that an interrupted program left. It is an error if another process is
 * writing it; on a file system without locks this is not noticed. */
dsmoe_status partial_file_create(partial_file *file, const char *path, dsmoe_error *error);
dsmoe_status partial_file_write(partial_file *file, const void *bytes, size_t size,
                                dsmoe_error *error);
/* Overwrites the first `size` bytes, which must have been written before: for a header that counts what
 * follows it. */
dsmoe_status partial_file_rewrite_head(partial_file *file, const void *bytes, size_t size,
                                       dsmoe_error *error);
/* Syncs, renames and frees. After a failure the partial file is removed. */
dsmoe_status partial_file_finish(partial_file *file, dsmoe_error *error);
/* Removes the partial file and frees. Allowed after finish, after a failed create, and on zeros. */
void partial_file_abandon(partial_file *file);

/* Writes a whole file with the text that `put` produces, which is held in memory. */
typedef void partial_file_put_fn(FILE *text, const void *context);
dsmoe_status partial_file_put_text(const char *path, partial_file_put_fn *put, const void *context,
                                   dsmoe_error *error);
/* The same for FOLDER/NAME. */
dsmoe_status partial_file_write_text(const char *folder, const char *name, partial_file_put_fn *put,
                                     const void *context, dsmoe_error *error);

#endif

/* partial_file.h - a file that appears under its name only when it is complete and on the disk.
 *
 * Until then it is NAME.partial beside it. A file under NAME is whole, whatever happened to
 * the program, the disk or the machine meanwhile. */
#ifndef DSMOE_FORMATS_PARTIAL_FILE_H
#define DSMOE_FORMATS_PARTIAL_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

typedef struct partial_file {
    char *path, *partial; /* the name to be, and the name until then */
    int descriptor;       /* -1 once closed */
    int lock;             /* the same file, open until it has its name: others keep away; or -1 */
    size_t size;          /* written so far */
} partial_file;

/* A partial file that an earlier program left behind is overwritten; one that is being written is an
 * error. A file system without locks lets two write. */
dsmoe_status partial_file_create(partial_file *file, const char *path, dsmoe_error *error);
dsmoe_status partial_file_write(partial_file *file, const void *bytes, size_t size,
                                dsmoe_error *error);
/* Overwrites the first `size` bytes, which must have been written: for a header that counts what follows
 * it. */
dsmoe_status partial_file_rewrite_head(partial_file *file, const void *bytes, size_t size,
                                       dsmoe_error *error);
/* Syncs, renames and frees; on failure the partial file is gone. */
dsmoe_status partial_file_finish(partial_file *file, dsmoe_error *error);
/* Removes the partial file and frees. Allowed after finish, after a failed create, and on zeros. */
void partial_file_abandon(partial_file *file);

/* All of the above with the text that `put` writes, which is held in memory. */
typedef void partial_file_put_fn(FILE *text, const void *context);
dsmoe_status partial_file_put_text(const char *path, partial_file_put_fn *put, const void *context,
                                   dsmoe_error *error);
/* The same for FOLDER/NAME. */
dsmoe_status partial_file_write_text(const char *folder, const char *name, partial_file_put_fn *put,
                                     const void *context, dsmoe_error *error);

#endif

/* append_file.h - a file that grows by whole records: one that could not be written completely is
 * taken back, so that what lies after it can still be read. */
#ifndef DSMOE_REPORT_APPEND_FILE_H
#define DSMOE_REPORT_APPEND_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct append_file {
    char *path;
    int descriptor; /* -1 when closed */
    off_t size;
} append_file;

/* Takes `path` over, to be freed on close, also when it fails. `is_new`: the file must not be there
 * yet; otherwise it is made if need be. After DSMOE_ERROR_IO errno says why. */
dsmoe_status append_file_open(append_file *file, char *path, bool is_new, dsmoe_error *error);
dsmoe_status append_file_write(append_file *file, const void *bytes, size_t size,
                               dsmoe_error *error);
/* What was written has reached the disk. */
dsmoe_status append_file_sync(append_file *file, dsmoe_error *error);
/* Allowed on zeros and after a failed open. */
void append_file_close(append_file *file);

#endif

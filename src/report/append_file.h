/* append_file.h - a file that grows by whole records. A record that could not be written completely is cut
 * off again, so that later records can still be read. */
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

/* Takes over `path`, which append_file_close frees, even if this call fails. `is_new`: the file must not
 * exist; otherwise it is created if it does not exist. After DSMOE_ERROR_IO, errno has the reason. */
dsmoe_status append_file_open(append_file *file, char *path, bool is_new, dsmoe_error *error);
dsmoe_status append_file_write(append_file *file, const void *bytes, size_t size,
                               dsmoe_error *error);
/* Returns when what was written has reached the disk. */
dsmoe_status append_file_sync(append_file *file, dsmoe_error *error);
/* Allowed on a zeroed append_file and after a failed open. */
void append_file_close(append_file *file);

#endif

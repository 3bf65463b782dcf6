/* whole_file.h - a small file, read into memory: no other program can change or shorten it, as it could
 * with a mapped file. */
#ifndef DSMOE_FORMATS_WHOLE_FILE_H
#define DSMOE_FORMATS_WHOLE_FILE_H

#include <stddef.h>

#include "base/status.h"

typedef struct whole_file {
    char *bytes;
    size_t size; /* at least 1 */
} whole_file;

/* Anything but a regular file with at least one byte is an error, and so is one of more than max_size; a
 * FIFO is not waited for. */
dsmoe_status whole_file_read(whole_file *file, const char *path, size_t max_size,
                             dsmoe_error *error);
/* Allowed on a zeroed whole_file and after a failed read. */
void whole_file_free(whole_file *file);

#endif

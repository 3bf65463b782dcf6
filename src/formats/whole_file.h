/* whole_file.h - a small file, read into memory, where other programs cannot change it, unlike a mapped
 * file. */
#ifndef DSMOE_FORMATS_WHOLE_FILE_H
#define DSMOE_FORMATS_WHOLE_FILE_H

#include <stddef.h>

#include "base/status.h"

typedef struct whole_file {
    char *bytes;
    size_t size; /* at least 1 */
} whole_file;

/* Anything but a regular file with at least one byte is an error, and so is a file of more than max_size
 * bytes. It does not wait for a FIFO. */
dsmoe_status whole_file_read(whole_file *file, const char *path, size_t max_size,
                             dsmoe_error *error);
/* Allowed on a zeroed whole_file and after a failed read. */
void whole_file_free(whole_file *file);

#endif

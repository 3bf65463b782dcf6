/* mapped_file.h - a whole file as read-only memory. Pages are read when touched and shared by every
 * process that maps the file. */
#ifndef DSMOE_FORMATS_MAPPED_FILE_H
#define DSMOE_FORMATS_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"

typedef struct mapped_file {
    const unsigned char *bytes;
    size_t size; /* at least 1 */
} mapped_file;

/* Anything but a regular file with at least one byte is an error; a FIFO is not waited for. The
 * file must not shrink while it is mapped: touching a page that is gone raises SIGBUS. */
dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error);
/* Allowed on a zeroed mapped_file and after a failed open. */
void mapped_file_close(mapped_file *file);

/* The path of a file in a folder, in memory to free(); NULL if there is none. */
char *mapped_file_path(const char *folder, const char *name);

#endif

/* mapped_file.h - a whole file as read-only memory. Pages are read when touched and shared by every
 * process that maps the file. */
#ifndef DSMOE_FORMATS_MAPPED_FILE_H
#define DSMOE_FORMATS_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"
#include "formats/mapping_guard.h"
#include "formats/regular_file.h"

typedef struct mapped_file {
    const unsigned char *bytes;
    size_t size; /* at least 1 */
    mapping_guard *guard;
    regular_file source; /* the mapped file, even if its name changes */
} mapped_file;

/* Anything but a regular file with at least one byte is an error; it does not wait for a FIFO. Pages that
 * are gone, because another program shortened the file or the disk failed, read as zeros. So a caller must
 * ask mapped_file_intact() after using the contents. The first open installs a handler for SIGBUS
 * (mapping_guard.h); an embedding program's own handler is still called for addresses outside such files.
 * A small file that is needed only once should be read instead (whole_file.h). */
dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error);
/* False if the file was written to or resized since it was opened, or a page of it could not be read: its
 * bytes may have changed or be zeros. Cheap: one system call. True for a zeroed mapped_file. */
bool mapped_file_intact(const mapped_file *file);
/* Reports that the file is not intact. */
dsmoe_status mapped_file_lost(const char *path, dsmoe_error *error);
/* Allowed on a zeroed mapped_file and after a failed open. */
void mapped_file_close(mapped_file *file);

/* The path of a file in a folder. The caller frees it. NULL if out of memory. */
char *mapped_file_path(const char *folder, const char *name);

#endif

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
    regular_file source; /* the file it is of, whatever becomes of its name */
} mapped_file;

/* Anything but a regular file with at least one byte is an error; a FIFO is not waited for. Pages that are
 * gone, because someone made the file shorter or the disk fails, read as zeros. So a user of its numbers
 * must ask mapped_file_intact afterwards. Once a file was opened the process has a handler for SIGBUS
 * (mapping_guard.h); that of an embedding program is called for all addresses that are not in such a
 * file. What is small and needed only once is better read (whole_file.h). */
dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error);
/* False once someone has written to the file or changed its size, or a page of it could not be read: its
 * bytes may be others, or zeros. Cheap: one question to the system. True of a zeroed mapped_file. */
bool mapped_file_intact(const mapped_file *file);
/* The error to report then. */
dsmoe_status mapped_file_lost(const char *path, dsmoe_error *error);
/* Allowed on a zeroed mapped_file and after a failed open. */
void mapped_file_close(mapped_file *file);

/* The path of a file in a folder, in memory to free(); NULL if there is none. */
char *mapped_file_path(const char *folder, const char *name);

#endif

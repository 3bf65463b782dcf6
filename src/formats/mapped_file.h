/* mapped_file.h - a whole file as read-only memory. Pages are read when touched and shared by every
 * process that maps the file. */
#ifndef DSMOE_FORMATS_MAPPED_FILE_H
#define DSMOE_FORMATS_MAPPED_FILE_H

#include <stddef.h>

#include "base/status.h"
#include "formats/mapping_guard.h"

typedef struct mapped_file {
    const unsigned char *bytes;
    size_t size;          /* at least 1 */
    mapping_guard *guard; /* or NULL */
    int descriptor;       /* of a guarded file */
} mapped_file;

/* Anything but a regular file with at least one byte is an error; a FIFO is not waited for. The
 * file must not shrink while it is mapped: touching a page that is gone raises SIGBUS. */
dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error);
/* The same for a file that stays mapped for long: pages that are gone, because someone made the
 * file shorter or the disk fails, read as zeros. So whoever uses numbers of it must ask
 * mapped_file_intact afterwards. Once such a file was opened the process has a handler for SIGBUS
 * (mapping_guard.h); that of an embedding program is called for all addresses that are not in such
 * a file. */
dsmoe_status mapped_file_open_guarded(mapped_file *file, const char *path, dsmoe_error *error);
/* False once a guarded file is shorter than it was, or a page of it could not be read: zeros may
 * have taken the place of its bytes. Cheap: one question to the system. Always true of other
 * files. */
bool mapped_file_intact(const mapped_file *file);
/* The error to report then. */
dsmoe_status mapped_file_lost(const char *path, dsmoe_error *error);
/* Allowed on a zeroed mapped_file and after a failed open. */
void mapped_file_close(mapped_file *file);

/* The path of a file in a folder, in memory to free(); NULL if there is none. */
char *mapped_file_path(const char *folder, const char *name);

#endif

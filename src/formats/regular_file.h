/* regular_file.h - opens a file that will be read completely: by mapping it, or into memory. */
#ifndef DSMOE_FORMATS_REGULAR_FILE_H
#define DSMOE_FORMATS_REGULAR_FILE_H

#include <stddef.h>
#include <time.h>

#include "base/status.h"

typedef struct regular_file {
    int descriptor;           /* for reading; the caller closes it */
    size_t size;              /* at least 1 */
    struct timespec modified; /* when it was last written to */
} regular_file;

/* Anything but a regular file with at least one byte is an error; it does not wait for a FIFO. After an
 * error there is nothing to close. */
dsmoe_status regular_file_open(regular_file *file, const char *path, dsmoe_error *error);

#endif

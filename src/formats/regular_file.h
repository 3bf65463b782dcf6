/* regular_file.h - opening a file that is to be read whole: by mapping it, or into memory. */
#ifndef DSMOE_FORMATS_REGULAR_FILE_H
#define DSMOE_FORMATS_REGULAR_FILE_H

#include <stddef.h>
#include <time.h>

#include "base/status.h"

typedef struct regular_file {
    int descriptor;           /* to read; the caller closes it */
    size_t size;              /* at least 1 */
    struct timespec modified; /* when it was last written to */
} regular_file;

/* Anything but a regular file with at least one byte is an error; a FIFO is not waited for. After an error
 * there is nothing to close. */
dsmoe_status regular_file_open(regular_file *file, const char *path, dsmoe_error *error);

#endif

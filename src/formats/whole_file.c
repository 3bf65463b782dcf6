/* whole_file.c - a small file, read into memory. */
#include "formats/whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/regular_file.h"

/* Reads all of the file's bytes. It is an error if the file has become shorter since it was opened. */
static dsmoe_status read_all(int descriptor, char *bytes, size_t size, const char *path,
                             dsmoe_error *error)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = read(descriptor, bytes + at, size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return status_fail(error, DSMOE_ERROR_IO, "%s: cannot read the file: %s", path,
                               strerror(errno));
        if (n == 0)
            return status_fail(error, DSMOE_ERROR_IO,
                               "%s: the file became shorter while it was read", path);
        at += (size_t)n;
    }
    return DSMOE_OK;
}

dsmoe_status whole_file_read(whole_file *file, const char *path, size_t max_size,
                             dsmoe_error *error)
{
    regular_file source;
    *file = (whole_file){0};
    STATUS_TRY(regular_file_open(&source, path, error));
    dsmoe_status status;
    if (source.size > max_size)
        status = status_fail(error, DSMOE_ERROR_FORMAT, "%s: %zu bytes, at most %zu are expected",
                             path, source.size, max_size);
    else if (!(file->bytes = malloc(source.size)))
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    else
        status = read_all(source.descriptor, file->bytes, source.size, path, error);
    close(source.descriptor);
    file->size = source.size;
    if (status != DSMOE_OK) whole_file_free(file);
    return status;
}

void whole_file_free(whole_file *file)
{
    free(file->bytes);
    *file = (whole_file){0};
}

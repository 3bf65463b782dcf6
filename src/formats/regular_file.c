/* regular_file.c - opens a file that will be read completely. */
#include "formats/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dsmoe_status examine(regular_file *file, const char *path, dsmoe_error *error)
{
    struct stat info;
    if (fstat(file->descriptor, &info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot examine the file: %s", path,
                           strerror(errno));
    if (S_ISDIR(info.st_mode))
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot read the file: %s", path,
                           strerror(EISDIR));
    if (!S_ISREG(info.st_mode))
        return status_fail(error, DSMOE_ERROR_IO, "%s: not a regular file", path);
    if (info.st_size <= 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the file is empty", path);
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: cannot read the file: %s", path,
                           strerror(EFBIG));
    file->size = (size_t)info.st_size;
    file->modified = info.st_mtim;
    return DSMOE_OK;
}

dsmoe_status regular_file_open(regular_file *file, const char *path, dsmoe_error *error)
{
    /* Without O_NONBLOCK a FIFO would block here until another process writes to it. */
    *file = (regular_file){.descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (file->descriptor < 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", path,
                           strerror(errno));
    dsmoe_status status = examine(file, path, error);
    if (status != DSMOE_OK) close(file->descriptor);
    return status;
}

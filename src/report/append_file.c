/* append_file.c - a file that grows by whole records. */
#include "report/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

dsmoe_status append_file_open(append_file *file, char *path, bool is_new, dsmoe_error *error)
{
    *file = (append_file){.path = path, .descriptor = -1};
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC | (is_new ? O_EXCL : 0);
    file->descriptor = open(path, flags, (mode_t)0666);
    struct stat info;
    if (file->descriptor < 0 || fstat(file->descriptor, &info) != 0) {
        int reason = errno;
        status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", path, strerror(reason));
        errno = reason;
        return DSMOE_ERROR_IO;
    }
    file->size = info.st_size;
    return DSMOE_OK;
}

dsmoe_status append_file_write(append_file *file, const void *bytes, size_t size,
                               dsmoe_error *error)
{
    const char *next = bytes;
    for (size_t left = size; left > 0;) {
        ssize_t written = write(file->descriptor, next, left);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            int reason = written < 0 ? errno : EIO;
            /* If this fails as well, a reader finds half a record. Readers must handle that anyway. */
            int cut = ftruncate(file->descriptor, file->size);
            (void)cut;
            return status_fail(error, DSMOE_ERROR_IO, "%s: cannot write the file: %s", file->path,
                               strerror(reason));
        }
        next += written;
        left -= (size_t)written;
    }
    file->size += (off_t)size;
    return DSMOE_OK;
}

dsmoe_status append_file_sync(append_file *file, dsmoe_error *error)
{
    if (fsync(file->descriptor) == 0 || errno == EINVAL) return DSMOE_OK; /* a pipe has no disk */
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot write the file: %s", file->path,
                       strerror(errno));
}

void append_file_close(append_file *file)
{
    if (!file->path) return; /* a zeroed append_file has no descriptor */
    if (file->descriptor >= 0) close(file->descriptor);
    free(file->path);
    *file = (append_file){.descriptor = -1};
}

/* mapped_file.c - a whole file as read-only memory. */
#include "formats/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static dsmoe_status map_descriptor(mapped_file *file, int descriptor, const char *path,
                                   dsmoe_error *error)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
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
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: cannot map the file: %s", path,
                           strerror(EFBIG));
    size_t size = (size_t)info.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (bytes == MAP_FAILED)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot map the file: %s", path,
                           strerror(errno));
    /* Fewer page walks, where the file system has large pages. */
    madvise(bytes, size, MADV_HUGEPAGE);
    file->bytes = bytes;
    file->size = size;
    return DSMOE_OK;
}

static dsmoe_status open_descriptor(const char *path, int *descriptor, dsmoe_error *error)
{
    /* Without O_NONBLOCK a FIFO would block here until someone writes to it. */
    *descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*descriptor >= 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", path,
                       strerror(errno));
}

dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error)
{
    memset(file, 0, sizeof *file);
    int descriptor;
    STATUS_TRY(open_descriptor(path, &descriptor, error));
    dsmoe_status status = map_descriptor(file, descriptor, path, error);
    close(descriptor); /* the mapping stays */
    return status;
}

dsmoe_status mapped_file_open_guarded(mapped_file *file, const char *path, dsmoe_error *error)
{
    memset(file, 0, sizeof *file);
    int descriptor;
    STATUS_TRY(open_descriptor(path, &descriptor, error));
    dsmoe_status status = map_descriptor(file, descriptor, path, error);
    if (status == DSMOE_OK) {
        file->guard = mapping_guard_add(file->bytes, file->size);
        if (!file->guard)
            status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    }
    if (status == DSMOE_OK) {
        file->descriptor = descriptor; /* the file it is of, whatever becomes of its name */
        return DSMOE_OK;
    }
    close(descriptor);
    mapped_file_close(file);
    return status;
}

bool mapped_file_intact(const mapped_file *file)
{
    struct stat info;
    if (!file->guard) return true;
    /* The end of the last page that is still there reads as zeros without a signal. */
    if (fstat(file->descriptor, &info) != 0 || (uintmax_t)info.st_size < file->size)
        mapping_guard_hit(file->guard);
    return !mapping_guard_was_hit(file->guard);
}

dsmoe_status mapped_file_lost(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: the file became shorter or could not be read while it was in use",
                       path);
}

void mapped_file_close(mapped_file *file)
{
    if (file->guard) {
        mapping_guard_remove(file->guard); /* before its addresses can become another's */
        close(file->descriptor);
    }
    if (file->bytes) munmap((void *)file->bytes, file->size);
    memset(file, 0, sizeof *file);
}

char *mapped_file_path(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

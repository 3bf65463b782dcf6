/* partial_file.c - a file that appears under its name only when it is complete and on the disk. */
#include "formats/partial_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pulse.h"
#include "formats/folder.h"
#include "formats/mapped_file.h"

static dsmoe_status fail(const partial_file *file, const char *what, int reason, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot %s the file: %s", file->path, what,
                       strerror(reason));
}

/* Whether the name still leads to the open file: another process may have finished it meanwhile. */
static bool is_still(const char *partial, int descriptor)
{
    struct stat named, opened;
    return lstat(partial, &named) == 0 && fstat(descriptor, &opened) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

static dsmoe_status open_partial(partial_file *file, const char *partial, dsmoe_error *error)
{
    for (;;) {
        /* A link of that name is not ours: writing through it could overwrite any file. */
        file->descriptor = open(partial, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, (mode_t)0666);
        if (file->descriptor < 0) return fail(file, "create", errno, error);
        if (flock(file->descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            return status_fail(error, DSMOE_ERROR_IO, "%s: another process is writing the file",
                               file->path);
        if (is_still(partial, file->descriptor)) break;
        close(file->descriptor);
    }
    file->lock = fcntl(file->descriptor, F_DUPFD_CLOEXEC, 0);
    if (file->lock >= 0 && ftruncate(file->descriptor, 0) == 0) return DSMOE_OK;
    dsmoe_status status = fail(file, "create", errno, error);
    unlink(partial); /* ours, since we have the lock */
    return status;
}

dsmoe_status partial_file_create(partial_file *file, const char *path, dsmoe_error *error)
{
    *file = (partial_file){.descriptor = -1, .lock = -1};
    static const char suffix[] = ".partial";
    size_t length = strlen(path);
    file->path = strdup(path);
    char *partial = malloc(length + sizeof suffix);
    if (!file->path || !partial) {
        free(partial);
        partial_file_abandon(file);
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    }
    memcpy(partial, path, length);
    memcpy(partial + length, suffix, sizeof suffix);
    dsmoe_status status = open_partial(file, partial, error);
    if (status != DSMOE_OK) {
        free(partial);
        partial_file_abandon(file);
        return status;
    }
    file->partial = partial; /* from now on partial_file_abandon() removes it */
    return DSMOE_OK;
}

dsmoe_status partial_file_write(partial_file *file, const void *bytes, size_t size,
                                dsmoe_error *error)
{
    /* If writes end on these borders, the page cache keeps the file in pages of this size, and a
     * mapping of it needs fewer page walks. */
    const size_t huge_page = (size_t)1 << 21;
    const char *next = bytes;
    while (size > 0) {
        pulse();
        size_t to_border = huge_page - file->size % huge_page;
        ssize_t written = write(file->descriptor, next, size < to_border ? size : to_border);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return fail(file, "write", written < 0 ? errno : EIO, error);
        next += written;
        size -= (size_t)written;
        file->size += (size_t)written;
    }
    return DSMOE_OK;
}

dsmoe_status partial_file_rewrite_head(partial_file *file, const void *bytes, size_t size,
                                       dsmoe_error *error)
{
    assert(size <= file->size);
    for (size_t done = 0; done < size;) {
        ssize_t written =
            pwrite(file->descriptor, (const char *)bytes + done, size - done, (off_t)done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return fail(file, "write", written < 0 ? errno : EIO, error);
        done += (size_t)written;
    }
    return DSMOE_OK;
}

dsmoe_status partial_file_finish(partial_file *file, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    if (fsync(file->descriptor) != 0) status = fail(file, "write", errno, error);
    /* Some file systems report a failed write only here. */
    if (close(file->descriptor) != 0 && status == DSMOE_OK)
        status = fail(file, "write", errno, error);
    file->descriptor = -1;
    if (status == DSMOE_OK && rename(file->partial, file->path) != 0)
        status = fail(file, "rename", errno, error);
    if (status == DSMOE_OK) {
        free(file->partial);
        file->partial = NULL;                           /* nothing left to remove */
        status = folder_sync_parent(file->path, error); /* the name must reach the disk as well */
    }
    partial_file_abandon(file);
    return status;
}

void partial_file_abandon(partial_file *file)
{
    if (!file->path) return;
    if (file->descriptor >= 0) close(file->descriptor);
    if (file->partial) unlink(file->partial);
    if (file->lock >= 0) close(file->lock);
    free(file->partial);
    free(file->path);
    *file = (partial_file){.descriptor = -1, .lock = -1};
}

static dsmoe_status write_whole(const char *path, const char *bytes, size_t size,
                                dsmoe_error *error)
{
    partial_file file;
    STATUS_TRY(partial_file_create(&file, path, error));
    dsmoe_status status = partial_file_write(&file, bytes, size, error);
    if (status == DSMOE_OK) return partial_file_finish(&file, error);
    partial_file_abandon(&file);
    return status;
}

dsmoe_status partial_file_put_text(const char *path, partial_file_put_fn *put, const void *context,
                                   dsmoe_error *error)
{
    char *bytes = NULL;
    size_t size;
    FILE *text = open_memstream(&bytes, &size);
    bool complete = text != NULL;
    if (text) {
        put(text, context);
        complete = !ferror(text);
        complete = fclose(text) == 0 && complete;
    }
    dsmoe_status status = complete
                              ? write_whole(path, bytes, size, error)
                              : status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    free(bytes);
    return status;
}

dsmoe_status partial_file_write_text(const char *folder, const char *name, partial_file_put_fn *put,
                                     const void *context, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, name);
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s/%s: out of memory", folder, name);
    dsmoe_status status = partial_file_put_text(path, put, context, error);
    free(path);
    return status;
}

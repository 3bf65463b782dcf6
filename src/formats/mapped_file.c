/* mapped_file.c - a whole file as read-only memory. */
#include "formats/mapped_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static dsmoe_status map(mapped_file *file, const char *path, dsmoe_error *error)
{
    void *bytes = mmap(NULL, file->source.size, PROT_READ, MAP_PRIVATE, file->source.descriptor, 0);
    if (bytes == MAP_FAILED)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot map the file: %s", path,
                           strerror(errno));
    file->bytes = bytes;
    file->size = file->source.size;
    /* Fewer page walks, if the file system has large pages. */
    madvise(bytes, file->size, MADV_HUGEPAGE);
    file->guard = mapping_guard_add(file->bytes, file->size);
    if (!file->guard) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    return DSMOE_OK;
}

dsmoe_status mapped_file_open(mapped_file *file, const char *path, dsmoe_error *error)
{
    memset(file, 0, sizeof *file);
    STATUS_TRY(regular_file_open(&file->source, path, error));
    dsmoe_status status = map(file, path, error);
    if (status == DSMOE_OK) return DSMOE_OK;
    close(file->source.descriptor);
    mapped_file_close(file);
    return status;
}

/* A new name, owner or access mode of the file does no harm. */
static bool is_unchanged(const regular_file *source)
{
    struct stat now;
    return fstat(source->descriptor, &now) == 0 && (uintmax_t)now.st_size == source->size &&
           now.st_mtim.tv_sec == source->modified.tv_sec &&
           now.st_mtim.tv_nsec == source->modified.tv_nsec;
}

bool mapped_file_intact(const mapped_file *file)
{
    if (!file->guard) return true;
    /* No signal is raised for changed bytes, nor for the rest of the last page after a new end of the
     * file, which reads as zeros. */
    if (!is_unchanged(&file->source)) mapping_guard_hit(file->guard);
    return !mapping_guard_was_hit(file->guard);
}

dsmoe_status mapped_file_lost(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: the file changed or could not be read while it was in use", path);
}

void mapped_file_close(mapped_file *file)
{
    if (file->guard) {
        mapping_guard_remove(file->guard); /* before another mapping can get its addresses */
        close(file->source.descriptor);
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

/* folder.c - folders as units of work. */
#include "formats/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "formats/whole_file.h"

static const char partial_suffix[] = ".partial"; /* of partial_file */

static dsmoe_status fail(const char *path, const char *what, int reason, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot %s the folder: %s", path, what,
                       strerror(reason));
}

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* ---- names on the disk ----------------------------------------------------------------------- */

/* A file system that cannot sync a folder returns EINVAL; that is not a failure. */
dsmoe_status folder_sync(const char *path, dsmoe_error *error)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return fail(path, "open", errno, error);
    bool synced = fsync(descriptor) == 0 || errno == EINVAL;
    int reason = errno;
    close(descriptor);
    return synced ? DSMOE_OK : fail(path, "sync", reason, error);
}

/* The path without its last name; "" if nothing is left. The caller frees it. */
static char *parent_of(const char *path)
{
    char *parent = strdup(path);
    if (!parent) return NULL;
    size_t length = strlen(parent);
    while (length > 0 && parent[length - 1] == '/') length--;
    while (length > 0 && parent[length - 1] != '/') length--;
    parent[length] = '\0';
    return parent;
}

dsmoe_status folder_sync_parent(const char *path, dsmoe_error *error)
{
    char *parent = parent_of(path);
    if (!parent) return out_of_memory(path, error);
    dsmoe_status status = folder_sync(*parent ? parent : ".", error);
    free(parent);
    return status;
}

dsmoe_status folder_rename(const char *from, const char *to, dsmoe_error *error)
{
    if (rename(from, to) != 0) return fail(to, "put in place", errno, error);
    return folder_sync_parent(to, error);
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static dsmoe_status make_one(const char *path, bool *lacks_parent, dsmoe_error *error)
{
    if (mkdir(path, 0777) == 0) return folder_sync_parent(path, error);
    int reason = errno;
    if (is_folder(path)) return DSMOE_OK;
    *lacks_parent = reason == ENOENT;
    return fail(path, "create", reason, error);
}

dsmoe_status folder_make(const char *path, dsmoe_error *error)
{
    bool lacks_parent = false;
    dsmoe_status status = make_one(path, &lacks_parent, error);
    if (!lacks_parent) return status;
    char *parent = parent_of(path);
    if (!parent) return out_of_memory(path, error);
    if (*parent) {
        status = folder_make(parent, error);
        if (status == DSMOE_OK) status = make_one(path, &lacks_parent, error);
    }
    free(parent);
    return status;
}

/* Cuts the last name off a path, with the slashes before it. Leaves "" if there was no other name. */
static void cut_name(char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/') length--;
    while (length > 0 && path[length - 1] != '/') length--;
    while (length > 0 && path[length - 1] == '/') length--;
    path[length] = '\0';
}

char *folder_missing(const char *path)
{
    char *at = strdup(path), *made = NULL;
    struct stat info;
    for (; at && *at && lstat(at, &info) != 0; cut_name(at)) {
        free(made);
        made = strdup(at);
    }
    free(at);
    return made;
}

void folder_unmake(const char *path, const char *made)
{
    char *at = made ? strdup(path) : NULL;
    for (; at && strlen(at) >= strlen(made); cut_name(at))
        if (rmdir(at) != 0) break;
    free(at);
}

/* ---- listing --------------------------------------------------------------------------------- */

dsmoe_status folder_each(const char *path, folder_visit_fn *visit, void *context,
                         dsmoe_error *error)
{
    DIR *list = opendir(path);
    if (!list && errno == ENOENT) return DSMOE_OK;
    if (!list) return fail(path, "read", errno, error);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(list)); errno = 0) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!visit(context, entry->d_name)) break;
    }
    int reason = errno;
    closedir(list);
    return reason ? fail(path, "read", reason, error) : DSMOE_OK;
}

/* Whether a name is one of the owner's, with or without the suffix of a partial_file. */
static bool is_owned(folder_owns_fn *owns, const char *name)
{
    size_t length = strlen(name), n = sizeof partial_suffix - 1;
    if (owns(name)) return true;
    if (length <= n || strcmp(name + length - n, partial_suffix)) return false;
    char *whole = strndup(name, length - n);
    bool owned = whole && owns(whole);
    free(whole);
    return owned;
}

/* A search for the first name in a folder that is the owner's (wants_owned) or is not. */
typedef struct name_search {
    folder_owns_fn *owns;
    bool wants_owned;
    char *found; /* to be freed; NULL: there is none */
} name_search;

static bool see_name(void *context, const char *name)
{
    name_search *search = context;
    if (is_owned(search->owns, name) != search->wants_owned) return true;
    search->found = strdup(name);
    return false;
}

bool folder_holds_only(const char *path, folder_owns_fn *owns)
{
    name_search foreign = {.owns = owns, .wants_owned = false};
    dsmoe_status status = folder_each(path, see_name, &foreign, NULL);
    bool none = status == DSMOE_OK && !foreign.found;
    free(foreign.found);
    return none;
}

/* ---- removing -------------------------------------------------------------------------------- */

static dsmoe_status remove_file(const char *folder, const char *name, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, name);
    if (!path) return out_of_memory(folder, error);
    dsmoe_status status = DSMOE_OK;
    if (unlink(path) != 0 && errno != ENOENT)
        status = status_fail(error, DSMOE_ERROR_IO, "%s: cannot remove the file: %s", path,
                             strerror(errno));
    free(path);
    return status;
}

/* Lists the folder again for each file, since removing files while listing is not well defined. */
dsmoe_status folder_remove(const char *path, folder_owns_fn *owns, dsmoe_error *error)
{
    for (;;) {
        name_search next = {.owns = owns, .wants_owned = true};
        STATUS_TRY(folder_each(path, see_name, &next, error));
        if (!next.found) break;
        dsmoe_status status = remove_file(path, next.found, error);
        free(next.found);
        STATUS_TRY(status);
    }
    if (rmdir(path) == 0 || errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT)
        return DSMOE_OK;
    return fail(path, "remove", errno, error);
}

/* ---- links ----------------------------------------------------------------------------------- */

bool folder_link(const char *folder, const char *name, const char *target)
{
    char *path = mapped_file_path(folder, name), *fresh;
    bool linked = false;
    struct stat info;
    if (asprintf(&fresh, "%s/.%s%s", folder, name, partial_suffix) < 0) fresh = NULL;
    if (!path || !fresh) goto done;
    if (lstat(path, &info) == 0 && !S_ISLNK(info.st_mode)) goto done; /* not ours */
    unlink(fresh); /* a process that was interrupted here may have left it */
    if (symlink(target, fresh) != 0) goto done;
    linked = rename(fresh, path) == 0;
    if (linked)
        folder_sync(folder, NULL); /* a failure does not matter here */
    else
        unlink(fresh);
done:
    free(path);
    free(fresh);
    return linked;
}

/* ---- copies ---------------------------------------------------------------------------------- */

enum { COPY_MAX_SIZE = 1 << 30 }; /* for the small files of a model, not for its weights */

static dsmoe_status copy_bytes(const char *from, const char *to, dsmoe_error *error)
{
    whole_file source;
    STATUS_TRY(whole_file_read(&source, from, COPY_MAX_SIZE, error));
    partial_file copy;
    dsmoe_status status = partial_file_create(&copy, to, error);
    if (status == DSMOE_OK) status = partial_file_write(&copy, source.bytes, source.size, error);
    if (status == DSMOE_OK)
        status = partial_file_finish(&copy, error);
    else
        partial_file_abandon(&copy);
    whole_file_free(&source);
    return status;
}

dsmoe_status folder_copy(const char *from, const char *name, const char *to, bool required,
                         dsmoe_error *error)
{
    char *source = is_folder(from) ? mapped_file_path(from, name) : strdup(from);
    char *copy = mapped_file_path(to, name);
    struct stat info;
    dsmoe_status status = DSMOE_OK;
    if (!source || !copy)
        status = out_of_memory(to, error);
    else if (required || stat(source, &info) == 0)
        status = copy_bytes(source, copy, error);
    free(source);
    free(copy);
    return status;
}

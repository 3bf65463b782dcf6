/* folder.h - folders as units of work: created, synced, renamed into place, and removed without
 * touching files that belong to others. */
#ifndef DSMOE_FORMATS_FOLDER_H
#define DSMOE_FORMATS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Creates the folder and the folders above it, unless they exist. */
dsmoe_status folder_make(const char *path, dsmoe_error *error);

/* The topmost folder that folder_make() would create; the caller frees the path. NULL if the folder
 * exists, or if out of memory. */
char *folder_missing(const char *path);
/* Removes a folder and those above it, up to `made`, and stops at the first that is not empty. If `made`
 * is NULL, nothing is removed. */
void folder_unmake(const char *path, const char *made);

/* Makes sure that names in the folder have reached the disk. */
dsmoe_status folder_sync(const char *path, dsmoe_error *error);
/* The same for the folder that `path` is in. */
dsmoe_status folder_sync_parent(const char *path, dsmoe_error *error);

/* Renames a folder and syncs its new name to the disk. Only an empty folder may already have that name. */
dsmoe_status folder_rename(const char *from, const char *to, dsmoe_error *error);

/* Passes every name except "." and ".." to `visit`, in no particular order, until it returns false. A
 * missing folder has no names. */
typedef bool folder_visit_fn(void *context, const char *name);
dsmoe_status folder_each(const char *path, folder_visit_fn *visit, void *context,
                         dsmoe_error *error);

/* Whether a name is one of those that a program puts into a folder. */
typedef bool folder_owns_fn(const char *name);
/* Whether a folder holds only such names, with or without the suffix of a partial_file. */
bool folder_holds_only(const char *path, folder_owns_fn *owns);
/* Removes these files, then the folder if it is empty. Other files in it are not a failure, nor is a
 * missing folder. */
dsmoe_status folder_remove(const char *path, folder_owns_fn *owns, dsmoe_error *error);

/* Copies FROM/NAME (or FROM itself, if that is a file) to TO/NAME, completely or not at all. The source
 * may be missing unless it is required. */
dsmoe_status folder_copy(const char *from, const char *name, const char *to, bool required,
                         dsmoe_error *error);

/* Makes FOLDER/NAME a symbolic link to `target`, replacing an existing link, and syncs it: then the old
 * link's target may be removed. False, with nothing changed, if that is impossible: some file systems
 * have no links, and a file or folder of that name is not replaced. */
bool folder_link(const char *folder, const char *name, const char *target);

#endif

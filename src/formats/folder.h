/* folder.h - folders as units of work: made, synced, put in place whole, and taken away without
 * touching a file that someone else put there. */
#ifndef DSMOE_FORMATS_FOLDER_H
#define DSMOE_FORMATS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Makes the folder, with the folders above it; one that is there already is fine. */
dsmoe_status folder_make(const char *path, dsmoe_error *error);

/* The topmost of the folders that making one would make, in memory to free(); NULL if it is there, or
 * without memory. */
char *folder_missing(const char *path);
/* Takes a folder that was made away again, with those above it down to `made`, as far as nothing is in
 * them. `made` may be NULL: nothing is taken away. */
void folder_unmake(const char *path, const char *made);

/* Names in the folder have reached the disk. */
dsmoe_status folder_sync(const char *path, dsmoe_error *error);
/* The same for the folder that a file or folder lies in. */
dsmoe_status folder_sync_parent(const char *path, dsmoe_error *error);

/* Gives a folder its final name, on the disk as well. Nothing but an empty folder may be there. */
dsmoe_status folder_rename(const char *from, const char *to, dsmoe_error *error);

/* Shows every name but "." and ".." to `visit`, in no order, until it returns false. A folder that is
 * not there has no names. */
typedef bool folder_visit_fn(void *context, const char *name);
dsmoe_status folder_each(const char *path, folder_visit_fn *visit, void *context,
                         dsmoe_error *error);

/* Whether a name is one of those that a program puts into a folder. */
typedef bool folder_owns_fn(const char *name);
/* Whether a folder holds such names only, and what a partial_file leaves of them. */
bool folder_holds_only(const char *path, folder_owns_fn *owns);
/* Removes those, and the folder unless something else is in it, which is not a failure. A folder that is
 * not there is removed already. */
dsmoe_status folder_remove(const char *path, folder_owns_fn *owns, dsmoe_error *error);

/* Copies FROM/NAME (or FROM itself, if that is a file) to TO/NAME, whole or not at all. One that is not
 * required may be missing. */
dsmoe_status folder_copy(const char *from, const char *name, const char *to, bool required,
                         dsmoe_error *error);

/* FOLDER/NAME as a symbolic link to `target`, in place of the link that is there, on the disk as well:
 * what the old link led to may be removed now. False, and nothing is changed, where that cannot be
 * done: not every file system has links, and no file or folder gives way. */
bool folder_link(const char *folder, const char *name, const char *target);

#endif

/* file_set.h - a set of files and folders, identified by device and inode number: a file with two names is
 * in it once. */
#ifndef DSMOE_FORMATS_FILE_SET_H
#define DSMOE_FORMATS_FILE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct file_identity {
    uint64_t device, number;
    bool used;
} file_identity;

typedef struct file_set { /* zeros: an empty one */
    file_identity *slots; /* [n_slots], a power of two; at most half of them are used */
    size_t n_slots, count;
} file_set;

/* *added is false if the set had it before. Returns false if out of memory. */
bool file_set_add(file_set *set, const struct stat *info, bool *added);
void file_set_free(file_set *set); /* allowed on zeros */

#endif

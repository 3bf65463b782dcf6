/* system_files.h - what the system says of itself in files: numbers, and the control groups that this
 * process runs in (a container is one). A file that is not there says nothing.
 * Nothing is allocated: a pass may ask. */
#ifndef DSMOE_BASE_SYSTEM_FILES_H
#define DSMOE_BASE_SYSTEM_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* The first numbers of FOLDER/NAME, at most n of them; how many there are. "max" is none, and nor is a
 * number below 0. */
int system_numbers(const char *folder, const char *name, uint64_t *numbers, int n);
/* The number after a word at the beginning of a line; `missing` if there is no such line. */
uint64_t system_line(const char *folder, const char *name, const char *word, uint64_t missing);

/* Called with the folder of a group in version 1 or 2 of the interface. */
typedef void system_group_fn(void *context, const char *folder, int version);
/* Visits the groups that a controller ("memory", "cpu") puts this process into, and those above them,
 * in a copy of /proc and /sys below `root` ("": the system's own). */
void system_groups_each(const char *root, const char *controller, system_group_fn *visit,
                        void *context);

#endif

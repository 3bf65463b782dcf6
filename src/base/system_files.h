/* system_files.h - numbers in files of /proc and /sys, and the control groups that this process runs in (a
 * container is one). Missing files are no error. Nothing is allocated, so these functions may be called
 * during a pass. */
#ifndef DSMOE_BASE_SYSTEM_FILES_H
#define DSMOE_BASE_SYSTEM_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the first numbers of FOLDER/NAME, at most n, and returns how many. It stops at anything else, such as
 * "max" or a number below 0. */
int system_numbers(const char *folder, const char *name, uint64_t *numbers, int n);
/* The number in the line that begins with a word; `missing` if there is no such line. */
uint64_t system_line(const char *folder, const char *name, const char *word, uint64_t missing);

/* Called with the folder of a group in version 1 or 2 of the interface. */
typedef void system_group_fn(void *context, const char *folder, int version);
/* Visits the groups that this process is in for a controller ("memory", "cpu"), and those above them, in a
 * copy of /proc and /sys below `root` ("": the real ones). */
void system_groups_each(const char *root, const char *controller, system_group_fn *visit,
                        void *context);

#endif

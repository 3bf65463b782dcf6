/* scratch.h - a folder and a file in it for each test program. */
#ifndef DSMOE_TESTS_SCRATCH_H
#define DSMOE_TESTS_SCRATCH_H

#include <stddef.h>

extern char directory[256], path[300]; /* a new folder, and the file in it */

/* Set-up and tear-down of a group of tests. */
int make_directory(void **state);
int remove_directory(void **state);

/* Writes a file with these bytes, replacing an existing one. */
void write_to(const char *file, const void *bytes, size_t size);
void write_bytes(const void *bytes, size_t size); /* the file at `path` */

#endif

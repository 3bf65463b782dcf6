/* alloc_failures.h - running out of memory: every allocation of a function fails once, and each time the
 * function must report it, leave nothing behind and work when called again.
 *
 * The linker sends the library's calls of malloc, mmap and their family through alloc_failures.c (--wrap).
 * Calls from jansson, a separate library, are not wrapped: when memory runs out it may drop a character of a
 * string, or stop at an assertion of its own. */
#ifndef DSMOE_TESTS_ALLOC_FAILURES_H
#define DSMOE_TESTS_ALLOC_FAILURES_H

#include "support.h"

/* The number of allocations so far. */
long alloc_count(void);
size_t alloc_aligned(void); /* bytes of large arrays that were requested so far */

/* Calls a function and frees what it made. */
typedef dsmoe_status attempt(dsmoe_error *error);

/* What a function may return for a refused allocation: only DSMOE_ERROR_MEMORY; or an I/O error as well,
 * as mapping a file may report it so; or success as well, where some of the memory only serves speed. */
typedef enum alloc_outcome {
    ALLOC_MEMORY,
    ALLOC_IO,
    ALLOC_OPTIONAL,
} alloc_outcome;
void check_failures(const char *name, attempt *run, alloc_outcome outcome);

#endif

/* alloc_failures.h - memory that cannot be had: every allocation of a function fails once, and each
 * time the function must say so, leave nothing behind and work when called again.
 *
 * The linker sends the library's calls of malloc, mmap and their family through alloc_failures.c
 * (--wrap). jansson, a library of its own, is left out: where it has no memory for the next
 * character of a string it drops that character, and may end in an assertion of its own. */
#ifndef DSMOE_TESTS_ALLOC_FAILURES_H
#define DSMOE_TESTS_ALLOC_FAILURES_H

#include "support.h"

/* So far. */
long alloc_count(void);
size_t alloc_aligned(void); /* bytes of large arrays that were ever asked for */

/* Calls a function and gives back what it made. */
typedef dsmoe_status attempt(dsmoe_error *error);

/* What may come of a refused allocation beside DSMOE_ERROR_MEMORY: nothing else; an I/O error,
 * which is what mapping a file may call it; or success as well, where some of the memory is only
 * for speed. */
typedef enum alloc_outcome {
    ALLOC_MEMORY,
    ALLOC_IO,
    ALLOC_OPTIONAL,
} alloc_outcome;
void check_failures(const char *name, attempt *run, alloc_outcome outcome);

#endif

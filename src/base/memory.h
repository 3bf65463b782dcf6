/* memory.h - large, aligned, zeroed memory. */
#ifndef DSMOE_BASE_MEMORY_H
#define DSMOE_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { MEMORY_ALIGNMENT = 64 };

/* NULL if there is not enough memory. Large pieces ask for huge pages, which saves page walks when gigabytes
 * of weights are read. Free with free(). */
void *memory_alloc(size_t size);

/* Memory that may never be needed: its pages become real when they are first touched. NULL if there is not
 * enough. Free with memory_release. */
void *memory_reserve(size_t size);
void memory_release(void *memory, size_t size); /* NULL is allowed */

/* Says that a piece of a mapped file is not needed soon. Its whole pages are removed from this process, and
 * read from the file again when they are touched. */
void memory_forget(const void *mapped, size_t size);

/* Bytes that this process could still get: the smaller of what the machine has left and what its control
 * groups allow. UINT64_MAX if the system does not say. */
uint64_t memory_available(void);
/* memory_available for a copy of /proc and /sys below `root`. */
uint64_t memory_available_under(const char *root);

#endif

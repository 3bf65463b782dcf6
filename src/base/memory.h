/* memory.h - large, aligned, zeroed memory. */
#ifndef DSMOE_BASE_MEMORY_H
#define DSMOE_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { MEMORY_ALIGNMENT = 64 };

/* NULL if there is none. Large pieces ask for huge pages, which spares the page walks of reading
 * gigabytes of weights. Free with free(). */
void *memory_alloc(size_t size);

/* The same, but pages become real when they are first touched: for what may never be needed. NULL if
 * there is none. Free with memory_release. */
void *memory_reserve(size_t size);
void memory_release(void *memory, size_t size); /* NULL is allowed */

/* The whole pages of a piece of a mapped file are not needed soon: they leave this process, and
 * come back from the file when they are touched. */
void memory_forget(const void *mapped, size_t size);

/* Bytes that this process could still get: what the machine has left, and what the control groups
 * that it runs in allow. UINT64_MAX if nothing says. */
uint64_t memory_available(void);
/* The same for a copy of /proc and /sys below `root`. */
uint64_t memory_available_under(const char *root);

#endif

/* memory.h - large, aligned, zeroed memory. */
#ifndef DSMOE_BASE_MEMORY_H
#define DSMOE_BASE_MEMORY_H

#include <stddef.h>

enum { MEMORY_ALIGNMENT = 64 };

/* NULL if it cannot be had. Large pieces ask for huge pages, which spares the page walks of reading
 * gigabytes of weights. Free with free(). */
void *memory_alloc(size_t size);

#endif

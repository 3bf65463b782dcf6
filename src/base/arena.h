/* arena.h - one layout function measures and places.
 *
 * A function that takes its arrays from an arena runs twice: over an arena without memory it only
 * adds up sizes, over one with memory it hands out the places. So a layout is written once, and its
 * size can be asked before any memory exists. */
#ifndef DSMOE_BASE_ARENA_H
#define DSMOE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena {
    char *base;  /* NULL while measuring */
    size_t used; /* bytes so far */
    bool overflow;
} arena;

/* An arena over memory of any alignment; NULL measures. */
arena arena_over(void *memory);

/* count·size bytes on a cache line of their own; NULL while measuring. */
void *arena_take(arena *a, int64_t count, size_t size);

/* What must be allocated for all that was taken, whatever its alignment; 0 if it cannot fit. */
size_t arena_size(const arena *a);

#endif

/* arena.h - one layout function measures and places.
 *
 * A function that takes its arrays from an arena is called twice. With an arena without memory it only adds
 * up sizes; with memory, it gets the places of the arrays. So each layout is written once, and its size is
 * known before any memory is allocated. */
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

/* Takes count·size bytes, beginning at a cache line; NULL while measuring. */
void *arena_take(arena *a, int64_t count, size_t size);

/* How many bytes to allocate, at any alignment, for all that was taken; 0 if that is too large. */
size_t arena_size(const arena *a);

#endif

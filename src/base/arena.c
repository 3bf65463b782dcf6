/* arena.c - one layout function measures and places. */
#include "base/arena.h"

#include "base/checked.h"
#include "base/memory.h"

arena arena_over(void *memory)
{
    if (!memory) return (arena){0};
    uintptr_t at = (uintptr_t)memory, line = MEMORY_ALIGNMENT;
    return (arena){.base = (char *)memory + ((line - at % line) % line)};
}

void *arena_take(arena *a, int64_t count, size_t size)
{
    const size_t line = MEMORY_ALIGNMENT;
    size_t bytes;
    if (count < 0 || !checked_mul_size((size_t)count, size, &bytes) || bytes > SIZE_MAX / 4 ||
        a->used > SIZE_MAX / 4) {
        a->overflow = true;
        return NULL;
    }
    void *place = a->base ? a->base + a->used : NULL;
    a->used += (bytes + line - 1) / line * line;
    return place;
}

size_t arena_size(const arena *a) { return a->overflow ? 0 : a->used + MEMORY_ALIGNMENT; }

/* memory.c - large, aligned, zeroed memory. */
#include "base/memory.h"

#include "dsmoe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *memory_alloc(size_t size)
{
    const size_t huge_page = (size_t)1 << 21;
    size_t alignment = size >= 2 * huge_page ? huge_page : MEMORY_ALIGNMENT;
    if (size > SIZE_MAX - alignment) return NULL;
    size_t rounded = (size + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded ? rounded : alignment);
    if (!memory) return NULL;
    if (alignment == huge_page) madvise(memory, rounded, MADV_HUGEPAGE); /* a hint: may fail */
    memset(memory, 0, rounded);
    return memory;
}

void *memory_reserve(size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

void memory_release(void *memory, size_t size)
{
    if (memory) munmap(memory, size);
}

void memory_forget(const void *mapped, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)mapped;
    uintptr_t from = (first + page - 1) / page * page, to = (first + size) / page * page;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}

void *dsmoe_memory_alloc(size_t size) { return memory_alloc(size); }

void dsmoe_memory_free(void *memory) { free(memory); }

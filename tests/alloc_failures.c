/* alloc_failures.c - the allocations of the library, counted and refused. */
#include "alloc_failures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- counting allocations ------------------------------------------------------------------- */

static long n_allocations;
static size_t n_aligned;
static long fail_at = -1; /* the number of the allocation that is refused; none if negative */

/* Memory that was handed out and not yet returned. Memory that others allocated, such as the text of
 * open_memstream, may be freed through here too and does not count. */
enum { MAX_LIVE = 1 << 16 };
static void *handed_out[MAX_LIVE];
static long n_live;

static bool refused(void) { return n_allocations++ == fail_at; }

static void *counted(void *memory)
{
    if (memory && n_live < MAX_LIVE) handed_out[n_live++] = memory;
    return memory;
}

static void returned(const void *memory)
{
    for (long i = n_live; i-- > 0;)
        if (handed_out[i] == memory) {
            handed_out[i] = handed_out[--n_live];
            return;
        }
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size) { return refused() ? NULL : counted(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (refused()) return NULL;
    returned(memory);
    return counted(__real_realloc(memory, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    n_aligned += size;
    return refused() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text) { return refused() ? NULL : counted(__real_strdup(text)); }

void __wrap_free(void *memory)
{
    returned(memory);
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (refused()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = __real_mmap(at, size, protection, flags, file, offset);
    return memory == MAP_FAILED ? memory : counted(memory);
}

int __wrap_munmap(void *memory, size_t size)
{
    returned(memory);
    return __real_munmap(memory, size);
}

long alloc_count(void) { return n_allocations; }

size_t alloc_aligned(void) { return n_aligned; }

/* ---- failing at every point ----------------------------------------------------------------- */

static bool is_right(dsmoe_status status, alloc_outcome outcome)
{
    return status == DSMOE_ERROR_MEMORY || (outcome != ALLOC_MEMORY && status == DSMOE_ERROR_IO) ||
           (outcome == ALLOC_OPTIONAL && status == DSMOE_OK);
}

void check_failures(const char *name, attempt *run, alloc_outcome outcome)
{
    dsmoe_error error;
    long live = n_live, n = 0;
    for (;; n++) {
        memset(&error, 0, sizeof error);
        fail_at = n;
        n_allocations = 0;
        dsmoe_status status = run(&error);
        bool reached = n_allocations > n;
        fail_at = -1;
        if (n_live != live) fail_msg("%s leaks when allocation %ld fails", name, n);
        if (status != DSMOE_OK && (error.status != status || !error.message[0]))
            fail_msg("%s gives no reason when allocation %ld fails", name, n);
        if (!reached) {
            if (status != DSMOE_OK) fail_msg("%s: %s", name, error.message);
            break;
        }
        if (!is_right(status, outcome))
            fail_msg("%s, allocation %ld fails: status %d, \"%s\"", name, n, status, error.message);
    }
    if (n == 0) fail_msg("%s allocates nothing", name);
}

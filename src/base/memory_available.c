/* memory_available.c - how much memory this process could still get.
 *
 * That is the smaller of what the machine has left and what the control groups of this process allow. A limit
 * that is missing or "max" is no limit. */
#include "base/memory.h"
#include "base/system_files.h"

/* The names of a group's files in the two versions of the interface. */
typedef struct group_files {
    const char *limit, *usage, *inactive, *active;
} group_files;

static const group_files files_of[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
    {"memory.max", "memory.current", "inactive_file", "active_file"},
};

/* Lowers *least to what one group leaves. Cached pages of files count as used, but the system can drop
 * them. */
static void take_least(void *context, const char *folder, int version)
{
    uint64_t *least = context, limit, used;
    const group_files *files = &files_of[version - 1];
    if (system_numbers(folder, files->limit, &limit, 1) != 1 ||
        system_numbers(folder, files->usage, &used, 1) != 1)
        return;
    uint64_t cached = system_line(folder, "memory.stat", files->inactive, 0) +
                      system_line(folder, "memory.stat", files->active, 0);
    used -= cached < used ? cached : used;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < *least) *least = left;
}

uint64_t memory_available_under(const char *root)
{
    uint64_t least = UINT64_MAX;
    uint64_t kibibytes = system_line(root, "proc/meminfo", "MemAvailable:", UINT64_MAX);
    uint64_t machine = kibibytes > UINT64_MAX / 1024 ? UINT64_MAX : kibibytes * 1024;
    system_groups_each(root, "memory", take_least, &least);
    return machine < least ? machine : least;
}

uint64_t memory_available(void) { return memory_available_under(""); }

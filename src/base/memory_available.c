/* memory_available.c - how much memory this process could still get: what the machine has left, and
 * what the control groups it runs in allow (a container is one). A file that is not there, or that
 * says "max", sets no limit. */
#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_PATH = 4096 };

/* ---- numbers in files ------------------------------------------------------------------------ */

/* ROOT and the rest as one path; false if it is too long. */
static bool join(char path[MEMORY_PATH], const char *root, const char *group, const char *name)
{
    return snprintf(path, MEMORY_PATH, "%s%s%s", root, group, name) < MEMORY_PATH;
}

/* The only number of a file; UINT64_MAX if it has none. */
static uint64_t read_number(const char *root, const char *group, const char *name)
{
    char path[MEMORY_PATH];
    unsigned long long number;
    FILE *file = join(path, root, group, name) ? fopen(path, "r") : NULL;
    if (!file) return UINT64_MAX;
    bool found = fscanf(file, "%llu", &number) == 1;
    fclose(file);
    return found ? number : UINT64_MAX;
}

/* The number after a word at the beginning of a line; `missing` if there is no such line. */
static uint64_t read_line(const char *root, const char *group, const char *name, const char *word,
                          uint64_t missing)
{
    char path[MEMORY_PATH], line[256];
    FILE *file = join(path, root, group, name) ? fopen(path, "r") : NULL;
    uint64_t found = missing;
    size_t length = strlen(word);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, word, length) && line[length] == ' ')
            found = strtoull(line + length, NULL, 10);
    if (file) fclose(file);
    return found;
}

/* ---- control groups -------------------------------------------------------------------------- */

/* The two versions of the interface, by the names of their files. */
typedef struct group_files {
    const char *mount, *limit, *usage, *inactive, *active;
} group_files;

static const group_files version_1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                      "/memory.usage_in_bytes", "total_inactive_file",
                                      "total_active_file"};
static const group_files version_2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                      "inactive_file", "active_file"};

/* What one group leaves. Cached pages of files count as used, but give way. */
static uint64_t group_leaves(const char *mount, const char *group, const group_files *files)
{
    uint64_t limit = read_number(mount, group, files->limit);
    uint64_t used = read_number(mount, group, files->usage);
    if (limit == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    uint64_t cached = read_line(mount, group, "/memory.stat", files->inactive, 0) +
                      read_line(mount, group, "/memory.stat", files->active, 0);
    used -= cached < used ? cached : used;
    return limit > used ? limit - used : 0;
}

/* The least that a group and those above it leave. Inside a container the mount may begin at the
 * container's own group: then the root says it. */
static uint64_t groups_leave(const char *root, const char *group, const group_files *files)
{
    char mount[MEMORY_PATH], path[MEMORY_PATH];
    uint64_t least = UINT64_MAX;
    if (!join(mount, root, files->mount, "") || !join(path, group, "", "")) return least;
    for (;;) {
        uint64_t left = group_leaves(mount, path, files);
        if (left < least) least = left;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Lines are "NUMBER:CONTROLLERS:GROUP"; version 2 has no controllers there. */
static uint64_t control_groups_leave(const char *root)
{
    char path[MEMORY_PATH], line[MEMORY_PATH];
    uint64_t least = UINT64_MAX;
    FILE *file = join(path, root, "/proc/self/cgroup", "") ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool has_memory = strstr(controllers, "memory") != NULL;
        if (controllers[1] && !has_memory) continue;
        uint64_t left = groups_leave(root, group, has_memory ? &version_1 : &version_2);
        if (left < least) least = left;
    }
    if (file) fclose(file);
    return least;
}

/* ---- all of it ------------------------------------------------------------------------------- */

uint64_t memory_available_under(const char *root)
{
    uint64_t kibibytes = read_line(root, "/proc", "/meminfo", "MemAvailable:", UINT64_MAX);
    uint64_t machine = kibibytes > UINT64_MAX / 1024 ? UINT64_MAX : kibibytes * 1024;
    uint64_t groups = control_groups_leave(root);
    return machine < groups ? machine : groups;
}

uint64_t memory_available(void) { return memory_available_under(""); }

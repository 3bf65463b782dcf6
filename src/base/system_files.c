/* system_files.c - numbers in the system's own files, and the folders of control groups. */
#include "base/system_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYSTEM_PATH = 4096 };

/* ---- numbers --------------------------------------------------------------------------------- */

static FILE *open_file(const char *folder, const char *name)
{
    char path[SYSTEM_PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    return fopen(path, "re");
}

int system_numbers(const char *folder, const char *name, uint64_t *numbers, int n)
{
    int found = 0;
    char word[32];
    FILE *file = open_file(folder, name);
    while (file && found < n && fscanf(file, "%31s", word) == 1) {
        char *end;
        numbers[found] = strtoull(word, &end, 10);
        if (*end || *word == '-') break;
        found++;
    }
    if (file) fclose(file);
    return found;
}

uint64_t system_line(const char *folder, const char *name, const char *word, uint64_t missing)
{
    char line[256];
    FILE *file = open_file(folder, name);
    uint64_t found = missing;
    size_t length = strlen(word);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, word, length) && line[length] == ' ')
            found = strtoull(line + length, NULL, 10);
    if (file) fclose(file);
    return found;
}

/* ---- control groups -------------------------------------------------------------------------- */

/* A group and those above it. Inside a container the mount may begin at the container's own group:
 * then the root says it. */
static void visit_upwards(const char *mount, const char *group, int version, system_group_fn *visit,
                          void *context)
{
    char folder[SYSTEM_PATH];
    size_t top = strlen(mount);
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) return;
    for (;;) {
        visit(context, folder, version);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top) return;
        *slash = '\0';
    }
}

/* Whether a list like "cpu,cpuacct" has the name. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (!strncmp(list, name, length) && (list[length] == ',' || !list[length])) return true;
    return false;
}

/* Lines are "NUMBER:CONTROLLERS:GROUP"; version 2 has no controllers there. */
void system_groups_each(const char *root, const char *controller, system_group_fn *visit,
                        void *context)
{
    char line[SYSTEM_PATH], mount[SYSTEM_PATH];
    FILE *file = open_file(root, "proc/self/cgroup");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(++controllers, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        int version = *controllers ? 1 : 2;
        if (version == 1 && !lists(controllers, controller)) continue;
        int length = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root,
                              version == 1 ? "/" : "", version == 1 ? controller : "");
        if (length < (int)sizeof mount) visit_upwards(mount, group, version, visit, context);
    }
    if (file) fclose(file);
}

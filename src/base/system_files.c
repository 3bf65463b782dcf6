/* system_files.c - numbers in files of /proc and /sys, and the folders of control groups. */
#include "base/system_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYSTEM_PATH = 4096, SYSTEM_TEXT = 16384 };

/* ---- numbers --------------------------------------------------------------------------------- */

/* Reads the beginning of FOLDER/NAME as a string; it is empty if there is no such file. */
static void read_text(const char *folder, const char *name, char text[SYSTEM_TEXT])
{
    char path[SYSTEM_PATH];
    size_t length = 0;
    int file = -1;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path)
        file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    for (ssize_t n = 1; file >= 0 && n > 0; length += n > 0 ? (size_t)n : 0)
        n = read(file, text + length, SYSTEM_TEXT - 1 - length);
    if (file >= 0) close(file);
    text[length] = '\0';
}

int system_numbers(const char *folder, const char *name, uint64_t *numbers, int n)
{
    char text[SYSTEM_TEXT], *end;
    read_text(folder, name, text);
    int found = 0;
    for (char *at = text; found < n; at = end) {
        at += strspn(at, " \n");
        numbers[found] = strtoull(at, &end, 10);
        if (end == at || *at == '-' || (*end && !strchr(" \n", *end))) break;
        found++;
    }
    return found;
}

/* Ends the first line of a text with '\0', and returns the rest; NULL if there is no more. */
static char *cut_line(char *text)
{
    char *end = strchr(text, '\n');
    if (!end) return NULL;
    *end = '\0';
    return end + 1;
}

uint64_t system_line(const char *folder, const char *name, const char *word, uint64_t missing)
{
    char text[SYSTEM_TEXT];
    size_t length = strlen(word);
    read_text(folder, name, text);
    for (char *line = text, *next; line; line = next) {
        next = cut_line(line);
        if (!strncmp(line, word, length) && line[length] == ' ')
            return strtoull(line + length, NULL, 10);
    }
    return missing;
}

/* ---- control groups -------------------------------------------------------------------------- */

/* Visits a group and those above it. Inside a container the mount may begin at the container's own group; its
 * files are then those of the root of the mount. */
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

/* Whether a list such as "cpu,cpuacct" contains the name. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (!strncmp(list, name, length) && (list[length] == ',' || !list[length])) return true;
    return false;
}

/* Lines are "NUMBER:CONTROLLERS:GROUP". In version 2 CONTROLLERS is empty. */
void system_groups_each(const char *root, const char *controller, system_group_fn *visit,
                        void *context)
{
    char text[SYSTEM_TEXT], mount[SYSTEM_PATH];
    read_text(root, "proc/self/cgroup", text);
    for (char *line = text, *next; line; line = next) {
        next = cut_line(line);
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
}

/* preload.c - reads the files of a model once. */
#include "cli/preload.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/progress.h"
#include "dsmoe.h"

enum { CHUNK = 8 << 20 };

/* A pattern for all files of the model: the folder's weights, or the parts of a split file. */
static void make_pattern(const char *path, char *pattern, size_t size)
{
    struct stat info;
    const char *part = strstr(path, "-of-");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        snprintf(pattern, size, "%s/*.safetensors", path);
    else if (part && part - path >= 6) /* NAME-00001-of-00003.gguf */
        snprintf(pattern, size, "%.*s-?????%s", (int)(part - path - 6), path, part);
    else
        snprintf(pattern, size, "%s", path);
}

static double total_size(const glob_t *files)
{
    double total = 0;
    struct stat info;
    for (size_t i = 0; i < files->gl_pathc; i++)
        if (stat(files->gl_pathv[i], &info) == 0) total += (double)info.st_size;
    return total;
}

static bool read_file(const char *path, char *chunk, progress *bar, double *done, double total,
                      const volatile sig_atomic_t *interrupted)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    ssize_t n = 1;
    while (n > 0 && !*interrupted) {
        n = read(fd, chunk, CHUNK);
        if (n > 0) *done += (double)n;
        progress_update(bar, *done, total);
    }
    close(fd);
    return !*interrupted;
}

bool preload_model(const char *path, const volatile sig_atomic_t *interrupted)
{
    char pattern[DSMOE_PATH + 64];
    glob_t files = {0};
    make_pattern(path, pattern, sizeof pattern);
    if (glob(pattern, 0, NULL, &files) != 0) return true; /* the name has characters of patterns */
    char *chunk = malloc(CHUNK);
    double done = 0, total = total_size(&files);
    progress bar = progress_start("reading the model", "bytes");
    bool whole = true;
    for (size_t i = 0; chunk && whole && i < files.gl_pathc; i++)
        whole = read_file(files.gl_pathv[i], chunk, &bar, &done, total, interrupted);
    progress_finish(&bar);
    free(chunk);
    globfree(&files);
    return whole;
}

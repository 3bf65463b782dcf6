/* model_path.c - the latest checkpoint of a training run. */
#include "cli/model_path.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static bool join(const char *folder, size_t length, const char *name, model_path *out)
{
    int n = snprintf(out->text, sizeof out->text, "%.*s/%s", (int)length, folder, name);
    return n >= 0 && (size_t)n < sizeof out->text;
}

static bool is_run(const char *folder, size_t length)
{
    model_path settings, checkpoints;
    struct stat info;
    return join(folder, length, "settings.json", &settings) && access(settings.text, F_OK) == 0 &&
           join(folder, length, "checkpoints", &checkpoints) &&
           stat(checkpoints.text, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The step of "step-00002000"; -1 for any other name. */
static int64_t step_of(const char *name)
{
    int64_t step;
    if (strncmp(name, "step-", 5) || !cli_parse_int(name + 5, 0, INT64_MAX, &step)) return -1;
    return step;
}

/* Finds the newest checkpoint by its name, because `latest` may be missing: not every file system has links.
 * -1 if there is none. */
static int64_t newest_step(const char *folder, size_t length, char name[64])
{
    model_path path;
    int64_t newest = -1;
    DIR *list = join(folder, length, "checkpoints", &path) ? opendir(path.text) : NULL;
    if (!list) return -1;
    for (struct dirent *entry; (entry = readdir(list));) {
        int64_t step = step_of(entry->d_name);
        if (step <= newest || strlen(entry->d_name) >= 32) continue;
        newest = step;
        snprintf(name, 64, "checkpoints/%.31s", entry->d_name);
    }
    closedir(list);
    return newest;
}

/* The step that `best` links to; -1 if nothing was measured, or there are no links. */
static int64_t best_step(const char *folder, size_t length)
{
    model_path path;
    char target[64];
    if (!join(folder, length, "best", &path)) return -1;
    ssize_t n = readlink(path.text, target, sizeof target - 1);
    if (n < 0) return -1;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    return step_of(slash ? slash + 1 : target);
}

int model_path_find(const char *command, const char **path, model_path *found)
{
    const char *folder = *path;
    char name[64];
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    if (!is_run(folder, length)) return CLI_OK;
    int64_t step = newest_step(folder, length, name);
    if (step < 0 || !join(folder, length, name, found))
        return cli_failure(
            command,
            "%s: this training run has no checkpoint yet; dsmoe train --resume continues it",
            folder);
    int64_t best = best_step(folder, length);
    if (best >= 0 && best != step)
        cli_note(command,
                 "%.*s: using its latest checkpoint, step %" PRId64
                 "; its best on held-out text is %.*s/best, step %" PRId64,
                 (int)length, folder, step, (int)length, folder, best);
    else
        cli_note(command, "%.*s: using its latest checkpoint, step %" PRId64 "%s", (int)length,
                 folder, step, best == step ? ", the best on held-out text as well" : "");
    *path = found->text;
    return CLI_OK;
}

/* checkpoint_folder.c - the checkpoints of a run: lists them and removes old ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/folder.h"
#include "train/checkpoint_form.h"

/* ---- listing --------------------------------------------------------------------------------- */

static dsmoe_status list_path(const char *run, char path[CHECKPOINT_PATH], dsmoe_error *error)
{
    if (snprintf(path, CHECKPOINT_PATH, "%s/checkpoints", run) < CHECKPOINT_PATH) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%.100s...: the path is too long", run);
}

typedef struct newest_search {
    int64_t below, found;
} newest_search;

static bool see_newest(void *context, const char *name)
{
    newest_search *search = context;
    int64_t step = checkpoint_step(name, "", "");
    if (step > search->found && step < search->below) search->found = step;
    return true;
}

dsmoe_status checkpoint_newest(const char *run, int64_t below, int64_t *step,
                               char path[CHECKPOINT_PATH], dsmoe_error *error)
{
    newest_search search = {below, -1};
    *step = -1;
    STATUS_TRY(list_path(run, path, error));
    STATUS_TRY(folder_each(path, see_newest, &search, error));
    if (search.found < 0) return DSMOE_OK;
    STATUS_TRY(checkpoint_path(run, "", search.found, "", path, error));
    *step = search.found;
    return DSMOE_OK;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* The checkpoint is renamed first, so that half a checkpoint never has a checkpoint's name. */
static dsmoe_status remove_checkpoint(const char *run, int64_t step, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH], old[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, "", step, "", path, error));
    STATUS_TRY(checkpoint_path(run, ".", step, ".old", old, error));
    if (!folder_holds_only(path, checkpoint_owns)) return DSMOE_OK;
    STATUS_TRY(folder_remove(old, checkpoint_owns, error));
    STATUS_TRY(folder_rename(path, old, error));
    return folder_remove(old, checkpoint_owns, error);
}

/* An unfinished write or removal left a hidden folder with one of these suffixes. */
typedef struct leftover {
    int64_t step;
    const char *suffix;
} leftover;

static bool see_leftover(void *context, const char *name)
{
    leftover *found = context;
    static const char *const suffixes[] = {".partial", ".old"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && found->step < 0; i++) {
        found->step = checkpoint_step(name, ".", suffixes[i]);
        found->suffix = suffixes[i];
    }
    return found->step < 0;
}

/* Lists the folder again after each removal, because removing entries while listing has undefined order. A
 * folder that cannot be removed because it contains a foreign file ends the loop: it would be found every
 * time. */
static dsmoe_status sweep(const char *run, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    do {
        leftover found = {-1, NULL};
        STATUS_TRY(list_path(run, path, error));
        STATUS_TRY(folder_each(path, see_leftover, &found, error));
        if (found.step < 0) return DSMOE_OK;
        STATUS_TRY(checkpoint_path(run, ".", found.step, found.suffix, path, error));
        STATUS_TRY(folder_remove(path, checkpoint_owns, error));
    } while (lstat(path, &info) != 0);
    return DSMOE_OK;
}

/* Points a link to the checkpoint of a step; false if there is none. */
static bool link_step(const char *run, const char *name, int64_t step)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    return step >= 0 && checkpoint_path(run, "", step, "", path, NULL) == DSMOE_OK &&
           stat(path, &info) == 0 && folder_link(run, name, path + strlen(run) + 1);
}

dsmoe_status checkpoint_prune(const char *run, int64_t keep, int64_t best_step, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    link_step(run, "best", best_step);
    STATUS_TRY(sweep(run, error));
    int64_t step = INT64_MAX;
    for (int64_t seen = 0;; seen++) {
        STATUS_TRY(checkpoint_newest(run, step, &step, path, error));
        if (step < 0) return DSMOE_OK;
        if (seen >= (keep > 1 ? keep : 1) && step != best_step)
            STATUS_TRY(remove_checkpoint(run, step, error));
    }
}

dsmoe_status checkpoint_set_aside(const char *run, int64_t step, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH], aside[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, "", step, "", path, error));
    STATUS_TRY(checkpoint_path(run, "damaged-", step, "", aside, error));
    STATUS_TRY(folder_remove(aside, checkpoint_owns, error));
    return folder_rename(path, aside, error);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Whether the path is a link whose target does not exist. */
static bool dangles(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) != 0 &&
           errno == ENOENT;
}

void checkpoint_mend_links(const char *run, int64_t newest_step, int64_t best_step)
{
    char path[CHECKPOINT_PATH];
    snprintf(path, sizeof path, "%s/latest", run);
    if (dangles(path)) link_step(run, "latest", newest_step);
    snprintf(path, sizeof path, "%s/best", run);
    if (dangles(path) && !link_step(run, "best", best_step)) unlink(path);
}

/* checkpoint_folder.c - the checkpoints of a run: which there are, which stay, which go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/folder.h"
#include "train/checkpoint_form.h"

/* ---- which there are ------------------------------------------------------------------------- */

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

int64_t checkpoint_newest(const char *run, int64_t below, char path[CHECKPOINT_PATH])
{
    newest_search search = {below, -1};
    if (list_path(run, path, NULL) != DSMOE_OK ||
        folder_each(path, see_newest, &search, NULL) != DSMOE_OK || search.found < 0 ||
        checkpoint_path(run, "", search.found, "", path, NULL) != DSMOE_OK)
        return -1;
    return search.found;
}

/* ---- which go -------------------------------------------------------------------------------- */

/* It loses its name first, so that half a checkpoint never has one. */
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

/* What was under way when a program ended is hidden, and ends so. */
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

/* One after the other, as removing what is being listed has no defined order. One that cannot go, as
 * somebody's file is in it, ends the sweep: it is the same every time. */
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

dsmoe_status checkpoint_prune(const char *run, int64_t keep, int64_t best_step, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    if (best_step >= 0) {
        STATUS_TRY(checkpoint_path(run, "", best_step, "", path, error));
        if (stat(path, &info) == 0) folder_link(run, "best", path + strlen(run) + 1);
    }
    STATUS_TRY(sweep(run, error));
    int64_t step = INT64_MAX;
    for (int64_t seen = 0; (step = checkpoint_newest(run, step, path)) >= 0; seen++)
        if (seen >= (keep > 1 ? keep : 1) && step != best_step)
            STATUS_TRY(remove_checkpoint(run, step, error));
    return DSMOE_OK;
}

dsmoe_status checkpoint_set_aside(const char *run, int64_t step, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH], aside[CHECKPOINT_PATH];
    STATUS_TRY(checkpoint_path(run, "", step, "", path, error));
    STATUS_TRY(checkpoint_path(run, "damaged-", step, "", aside, error));
    STATUS_TRY(folder_remove(aside, checkpoint_owns, error));
    return folder_rename(path, aside, error);
}

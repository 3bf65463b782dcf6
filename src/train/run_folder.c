/* run_folder.c - the folder of a run: what a new run may replace, which process may write to it, and that
 * its settings name files by paths that are valid from anywhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/folder.h"
#include "train/run.h"

/* This file is in the folder from the first file of a run until settings.json is written: anything else
 * there was left by an interrupted start and may be replaced. */
#define PREPARING ".preparing"
static const char preparing[] = PREPARING;

dsmoe_status run_path(const char *folder, const char *name, char path[CHECKPOINT_PATH],
                      dsmoe_error *error)
{
    if (snprintf(path, CHECKPOINT_PATH, "%s/%s", folder, name) < CHECKPOINT_PATH) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%.100s...: the path is too long", folder);
}

bool run_has(const run *r, const char *name)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    return run_path(r->folder, name, path, NULL) == DSMOE_OK && lstat(path, &info) == 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* A run can be resumed from anywhere, so its settings have no relative paths. */
dsmoe_status run_make_absolute(const run *r, char path[DSMOE_PATH], const char *key,
                               dsmoe_error *error)
{
    if (!*path) return DSMOE_OK;
    bool ends = memchr(path, '\0', DSMOE_PATH);
    char *real = ends ? realpath(path, NULL) : NULL;
    if (!ends) errno = ENAMETOOLONG;
    if (!real)
        return status_fail(error, DSMOE_ERROR_IO, "%.*s: cannot open the path given by %s: %s",
                           DSMOE_PATH, path, run_setting_name(r, key), strerror(errno));
    int length = snprintf(path, DSMOE_PATH, "%s", real);
    free(real);
    if (length < DSMOE_PATH) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%.100s...: the path (%s) is too long", path,
                       run_setting_name(r, key));
}

static dsmoe_status make_inputs_absolute(run *r, dsmoe_error *error)
{
    dsmoe_run_settings *s = &r->settings;
    STATUS_TRY(run_make_absolute(r, s->tokenizer, "tokenizer", error));
    STATUS_TRY(run_make_absolute(r, s->config, "config", error));
    STATUS_TRY(run_make_absolute(r, s->init, "init", error));
    STATUS_TRY(run_make_absolute(r, s->experts, "experts", error));
    for (int i = 0; i < DSMOE_MAX_DATA && *s->data[i]; i++)
        STATUS_TRY(run_make_absolute(r, s->data[i], "data", error));
    for (int i = 0; i < DSMOE_MAX_DATA && *s->eval_data[i]; i++)
        STATUS_TRY(run_make_absolute(r, s->eval_data[i], "eval_data", error));
    return DSMOE_OK;
}

/* If the run were inside the folder of its data, the data would change with every step. */
static dsmoe_status check_outside(const char *out, const char data[][DSMOE_PATH],
                                  dsmoe_error *error)
{
    for (int i = 0; i < DSMOE_MAX_DATA && *data[i]; i++) {
        size_t length = strlen(data[i]);
        if (data[i][length - 1] == '/') length--; /* the root folder */
        if (!strncmp(out, data[i], length) && (out[length] == '/' || !out[length]))
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "%s: lies in the data, %s; choose a folder outside it", out,
                               data[i]);
    }
    return DSMOE_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Two processes that train in one folder would damage each other's files. A file system without locks
 * cannot prevent it. */
static dsmoe_status lock_folder(run *r, dsmoe_error *error)
{
    r->lock = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->lock < 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the folder: %s", r->folder,
                           strerror(errno));
    if (flock(r->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: another process is training here", r->folder);
}

bool run_is_folder(const run *r, const char *path) { return same_file(path, r->folder); }

/* The requested tokenizer is in the folder already. */
bool run_has_own_tokenizer(const run *r)
{
    char path[CHECKPOINT_PATH];
    return same_file(r->settings.tokenizer, r->folder) ||
           (run_path(r->folder, "tokenizer.json", path, NULL) == DSMOE_OK &&
            same_file(r->settings.tokenizer, path));
}

/* A tokenizer that an interrupted start left here would be taken for this run's. An empty folder of
 * checkpoints would be taken for a run whose tokenizer must stay. */
static dsmoe_status remove_leftovers(const run *r, dsmoe_error *error)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    char path[CHECKPOINT_PATH];
    STATUS_TRY(run_path(r->folder, "checkpoints", path, error));
    rmdir(path); /* it will be made again */
    if (run_has_own_tokenizer(r)) return DSMOE_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        STATUS_TRY(run_path(r->folder, names[i], path, error));
        if (unlink(path) != 0 && errno != ENOENT)
            return status_fail(error, DSMOE_ERROR_IO, "%s: cannot remove the file: %s", path,
                               strerror(errno));
    }
    return DSMOE_OK;
}

/* Fails if the folder holds anything that would be replaced. */
static dsmoe_status check_folder(const run *r, dsmoe_error *error)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "data.cache",
                                        "expert_cfg.json",
                                        "metrics.jsonl",
                                        "report.html",
                                        "checkpoints",
                                        "latest",
                                        "best"};
    if (run_has(r, "settings.json"))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already holds a run; resume it, or choose another folder",
                           r->folder);
    if (run_has(r, preparing)) return remove_leftovers(r, error);
    bool own_tokenizer = run_has_own_tokenizer(r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (own_tokenizer && !strncmp(names[i], "tokenizer", strlen("tokenizer"))) continue;
        if (run_has(r, names[i]))
            return status_fail(error, DSMOE_ERROR_IO,
                               "%s: already holds '%s', which a run would replace; choose another "
                               "folder",
                               r->folder, names[i]);
    }
    return DSMOE_OK;
}

static dsmoe_status mark_folder(run *r, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    STATUS_TRY(run_path(r->folder, preparing, path, error));
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || close(file) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the file: %s", path,
                           strerror(errno));
    r->is_preparing = true;
    return DSMOE_OK;
}

/* ---- a start that fails ---------------------------------------------------------------------- */

static void remove_made_files(const run *r)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "data.cache",
                                        "expert_cfg.json", PREPARING};
    char path[CHECKPOINT_PATH];
    for (size_t i = run_has_own_tokenizer(r) ? 2 : 0; i < sizeof names / sizeof *names; i++)
        if (run_path(r->folder, names[i], path, NULL) == DSMOE_OK) unlink(path);
    if (run_path(r->folder, "checkpoints", path, NULL) == DSMOE_OK) rmdir(path);
}

static void forget_made(run *r)
{
    free(r->made);
    r->made = NULL;
}

void run_abandon_folder(run *r)
{
    if (run_has(r, "settings.json")) return; /* it holds a run, whatever failed later */
    if (r->is_preparing) remove_made_files(r);
    r->is_preparing = false;
    folder_unmake(r->folder, r->made);
    forget_made(r);
}

/* ---- new and old folders --------------------------------------------------------------------- */

static dsmoe_status set_folder(run *r, const char *path, dsmoe_error *error)
{
    if (snprintf(r->folder, sizeof r->folder, "%s", path) < (int)sizeof r->folder) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%.100s...: the path is too long", path);
}

dsmoe_status run_open_new_folder(run *r, dsmoe_error *error)
{
    dsmoe_run_settings *s = &r->settings;
    STATUS_TRY(settings_check(s, "settings", error));
    if (!*s->data[0])
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s names no text to learn from",
                           run_setting_name(r, "data"));
    if (!*s->out)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s names no folder for the run",
                           run_setting_name(r, "out"));
    if (!*s->config && !*s->preset && !*s->init) strcpy(s->preset, "tiny");
    STATUS_TRY(set_folder(r, s->out, error));
    STATUS_TRY(make_inputs_absolute(r, error)); /* first, so that a wrong path leaves no folder */
    r->made = folder_missing(r->folder);
    STATUS_TRY(folder_make(r->folder, error));
    STATUS_TRY(run_make_absolute(r, s->out, "out", error));
    STATUS_TRY(check_outside(s->out, s->data, error));
    STATUS_TRY(check_outside(s->out, s->eval_data, error));
    STATUS_TRY(lock_folder(r, error));
    STATUS_TRY(check_folder(r, error));
    return mark_folder(r, error);
}

dsmoe_status run_commit_folder(run *r, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    STATUS_TRY(run_path(r->folder, "checkpoints", path, error));
    STATUS_TRY(folder_make(path, error));
    if (!r->options.resume || settings_differ(&r->before, &r->settings))
        STATUS_TRY(settings_write(r->folder, &r->settings, error));
    STATUS_TRY(run_path(r->folder, preparing, path, error));
    unlink(path); /* ignored once there are settings */
    r->is_preparing = false;
    forget_made(r);
    return DSMOE_OK;
}

dsmoe_status run_open_old_folder(run *r, dsmoe_error *error)
{
    STATUS_TRY(set_folder(r, r->options.resume, error));
    char path[CHECKPOINT_PATH];
    STATUS_TRY(run_path(r->folder, "settings.json", path, error));
    if (!run_has(r, "settings.json"))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: not a training run: there is no settings.json", r->folder);
    r->settings = dsmoe_run_settings_default();
    STATUS_TRY(dsmoe_run_settings_read(path, &r->settings, error));
    return lock_folder(r, error);
}

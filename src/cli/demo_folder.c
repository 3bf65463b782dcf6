/* demo_folder.c - the folder of `dsmoe demo`, and removing what an earlier demo made. */
#include "cli/demo_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "study/demo_corpus.h"
#include "cli/output.h"

enum { PATH = DSMOE_PATH + 300 };

static const char marker_name[] = "demo.txt";
static const char marker_line[] = "made by dsmoe demo\n";
static const char marker_rest[] =
    "\n"
    "corpus/          the text that was learned from, a folder for each kind\n"
    "sample.ids       more examples of the same kinds, as token ids\n"
    "latest           the trained model: dsmoe generate -m latest -p ...\n"
    "report.html      how training went\n"
    "metrics.jsonl    the same as numbers, also in events.out.tfevents.* for TensorBoard\n"
    "settings.json    what decides the run, tokenizer.json and config.json included\n"
    "\n"
    "dsmoe demo, run in this folder again, replaces all these and leaves other files alone; if the\n"
    "model was trained further, only with --force.\n";

/* What a demo and its run make. Folders are removed with all that is in them. */
static const char *const made[] = {"corpus",
                                   "sample.ids",
                                   ".preparing",
                                   "checkpoints",
                                   "latest",
                                   "best",
                                   "config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "data.cache",
                                   "settings.json",
                                   "metrics.jsonl",
                                   "events.out.tfevents.*",
                                   "report.html"};
enum { N_MADE = sizeof made / sizeof *made };

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

static int remove_tree(const char *path)
{
    enum { MAX_OPEN = 16 };
    if (nftw(path, remove_entry, MAX_OPEN, FTW_DEPTH | FTW_PHYS) == 0) return CLI_OK;
    return cli_failure("demo", "%s: cannot remove what an earlier demo left: %s", path,
                       strerror(errno));
}

/* One of these names, or the partial file of an interrupted write. */
static bool is_made(const char *name)
{
    static const char partial[] = ".partial";
    char whole[NAME_MAX + 1];
    snprintf(whole, sizeof whole, "%s", name);
    size_t length = strlen(whole), n = sizeof partial - 1;
    if (length > n && !strcmp(whole + length - n, partial)) whole[length - n] = '\0';
    for (int i = 0; i < N_MADE; i++)
        if (fnmatch(made[i], whole, 0) == 0) return true;
    return false;
}

/* Whether a demo made the folder; *steps is how many that demo should have had, -1 if not known. */
static bool read_marker(const char *path, int64_t *steps)
{
    char line[sizeof marker_line + 1] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool ours = fgets(line, sizeof line, file) && !strcmp(line, marker_line);
    if (!ours || fscanf(file, "steps: %" SCNd64, steps) != 1) *steps = -1;
    fclose(file);
    return ours;
}

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* ---- files of other programs ------------------------------------------------------------------- */

static bool is_kind(const char *name)
{
    for (int i = 0; i < DEMO_N_KINDS; i++)
        if (!strcmp(name, demo_kinds[i].name)) return true;
    return false;
}

static bool is_examples(const char *name) { return !strcmp(name, "examples.jsonl"); }

static bool is_checkpoint(const char *name)
{
    return fnmatch("step-*", name, 0) == 0 || fnmatch(".step-*", name, 0) == 0;
}

/* A folder that is removed with its content must have only names of the demo. */
static int check_own(const char *folder, const char *name, bool (*is_own)(const char *name))
{
    char path[PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool is_folder = lstat(path, &info) == 0 && S_ISDIR(info.st_mode); /* not if it is a link */
    DIR *entries = is_folder ? opendir(path) : NULL;
    if (!entries) return CLI_OK;
    int exit_code = CLI_OK;
    for (struct dirent *entry; exit_code == CLI_OK && (entry = readdir(entries));)
        if (!is_dots(entry->d_name) && !is_own(entry->d_name))
            exit_code = cli_failure(
                "demo",
                "%s/%s: not part of the demo, but would be removed with its folder; move it, or "
                "choose another folder with --out",
                path, entry->d_name);
    closedir(entries);
    return exit_code;
}

static int check_folders(const char *folder)
{
    int exit_code = check_own(folder, "corpus", is_kind);
    if (exit_code == CLI_OK) exit_code = check_own(folder, "checkpoints", is_checkpoint);
    for (int i = 0; i < DEMO_N_KINDS && exit_code == CLI_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "corpus/%s", demo_kinds[i].name);
        exit_code = check_own(folder, name, is_examples);
    }
    return exit_code;
}

/* A run with more steps than its demo was trained further, so it is not removed without --force. */
static int check_run(const char *folder, int64_t steps)
{
    static dsmoe_run_settings settings; /* large */
    char path[PATH];
    snprintf(path, sizeof path, "%s/settings.json", folder);
    settings = dsmoe_run_settings_default();
    if (steps < 0 || dsmoe_run_settings_read(path, &settings, NULL) != DSMOE_OK) return CLI_OK;
    if (settings.steps <= steps) return CLI_OK;
    return cli_failure("demo",
                       "%s: the demo there was trained further, for %" PRId64
                       " steps instead of %" PRId64 "; --force replaces it",
                       folder, settings.steps, steps);
}

/* ---- the folder -------------------------------------------------------------------------------- */

/* Removes all that a demo made. */
static int clear_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return cli_failure("demo", "%s: cannot use this as a folder: %s", folder, strerror(errno));
    int exit_code = CLI_OK;
    for (struct dirent *entry; exit_code == CLI_OK && (entry = readdir(entries));) {
        char path[PATH];
        if (is_dots(entry->d_name) || !is_made(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        exit_code = remove_tree(path);
    }
    closedir(entries);
    return exit_code;
}

/* Written first, so that the folder is known as a demo's even if something fails later. */
static int write_marker(const char *path, int64_t steps)
{
    FILE *file = fopen(path, "w");
    if (!file) return cli_failure("demo", "%s: cannot create the file: %s", path, strerror(errno));
    bool written = fputs(marker_line, file) >= 0 &&
                   fprintf(file, "steps: %" PRId64 "\n", steps) >= 0 &&
                   fputs(marker_rest, file) >= 0;
    written = fclose(file) == 0 && written;
    if (written) return CLI_OK;
    return cli_failure("demo", "%s: cannot write the file: %s", path, strerror(errno));
}

int demo_folder_prepare(const char *folder, int64_t steps, bool force)
{
    char marker[PATH];
    int64_t steps_before;
    int exit_code = CLI_OK;
    snprintf(marker, sizeof marker, "%s/%s", folder, marker_name);
    if (read_marker(marker, &steps_before)) {
        exit_code = force ? CLI_OK : check_run(folder, steps_before);
        if (exit_code == CLI_OK) exit_code = check_folders(folder);
        if (exit_code == CLI_OK) exit_code = clear_folder(folder);
    } else {
        exit_code = output_check_folder("demo", folder, NULL, 0);
        if (exit_code == CLI_OK && mkdir(folder, 0777) != 0 && errno != EEXIST)
            exit_code =
                cli_failure("demo", "%s: cannot create the folder: %s", folder, strerror(errno));
    }
    return exit_code == CLI_OK ? write_marker(marker, steps) : exit_code;
}

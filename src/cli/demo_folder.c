/* demo_folder.c - the folder of `dsmoe demo`, and what of an earlier one has to go. */
#include "cli/demo_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

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
    "dsmoe demo, run in this folder again, replaces all these and leaves other files alone.\n";

/* What a demo and its run make; folders with all that is in them. */
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

/* One of these, or what is left of it where writing was interrupted. */
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

static bool has_marker(const char *path)
{
    char line[sizeof marker_line + 1] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool ours = fgets(line, sizeof line, file) && !strcmp(line, marker_line);
    fclose(file);
    return ours;
}

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* Entries by what they may be: all that a demo made goes, or nothing may be there at all. */
static int clear_folder(const char *folder, bool ours)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return cli_failure("demo", "%s: cannot use this as a folder: %s", folder, strerror(errno));
    int exit_code = CLI_OK;
    for (struct dirent *entry; exit_code == CLI_OK && (entry = readdir(entries));) {
        char path[DSMOE_PATH + 300];
        if (is_dots(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!ours)
            exit_code = cli_failure(
                "demo", "%s: the folder is not empty and no demo made it; choose another (--out)",
                folder);
        else if (is_made(entry->d_name))
            exit_code = remove_tree(path);
    }
    closedir(entries);
    return exit_code;
}

/* First of all, so that whatever happens later the folder is known as a demo's. */
static int write_marker(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return cli_failure("demo", "%s: cannot create the file: %s", path, strerror(errno));
    bool written = fputs(marker_line, file) >= 0 && fputs(marker_rest, file) >= 0;
    written = fclose(file) == 0 && written;
    if (written) return CLI_OK;
    return cli_failure("demo", "%s: cannot write the file: %s", path, strerror(errno));
}

int demo_folder_prepare(const char *folder)
{
    char marker[DSMOE_PATH + 300];
    snprintf(marker, sizeof marker, "%s/%s", folder, marker_name);
    if (mkdir(folder, 0777) != 0) {
        if (errno != EEXIST)
            return cli_failure("demo", "%s: cannot create the folder: %s", folder, strerror(errno));
        int exit_code = clear_folder(folder, has_marker(marker));
        if (exit_code != CLI_OK) return exit_code;
    }
    return write_marker(marker);
}

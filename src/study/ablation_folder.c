/* ablation_folder.c - the files of a comparison. */
#include "study/ablation_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/folder.h"
#include "formats/partial_file.h"
#include "formats/whole_file.h"
#include "report/lines.h"
#include "study/ablation_settings.h"
#include "study/ablation_share.h"

enum { MAX_TEXT = 64 << 20 }; /* bytes of settings.txt and of losses.tsv */

const char *ablation_path(const ablation *a, char path[ABLATION_PATH], const char *format, ...)
{
    int length = snprintf(path, ABLATION_PATH, "%s/", a->out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + length, (size_t)(ABLATION_PATH - length), format, arguments);
    va_end(arguments);
    return path;
}

static bool has_file(const ablation *a, const char *name)
{
    char path[ABLATION_PATH];
    return access(ablation_path(a, path, "%s", name), F_OK) == 0;
}

static bool is_empty_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

/* Reads a file of the folder as text, which the caller frees. */
static dsmoe_status read_text(const ablation *a, const char *name, char **text, dsmoe_error *error)
{
    char path[ABLATION_PATH];
    whole_file file = {0};
    if (!is_empty_file(ablation_path(a, path, "%s", name)))
        STATUS_TRY(whole_file_read(&file, path, MAX_TEXT, error));
    *text = file.bytes ? strndup(file.bytes, file.size) : strdup("");
    whole_file_free(&file);
    if (*text) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* ---- settings -------------------------------------------------------------------------------- */

static dsmoe_status compare_settings(ablation *a, const char *text, dsmoe_error *error)
{
    char *there;
    STATUS_TRY(read_text(a, "settings.txt", &there, error));
    dsmoe_status status = ablation_settings_compare(a, text, there, error);
    free(there);
    return status;
}

static void put_text(FILE *file, const void *context) { fputs(context, file); }

/* ---- folders without training ---------------------------------------------------------------- */

static const char *const folders[] = {"tokenizer", "configs", "runs"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

static bool see_name(void *context, const char *name)
{
    (void)name;
    *(bool *)context = false;
    return false;
}

/* A folder that cannot be read counts as not empty: it may have anything in it. */
static bool is_empty_folder(const char *path)
{
    bool is_empty = true;
    return folder_each(path, see_name, &is_empty, NULL) == DSMOE_OK && is_empty;
}

bool ablation_folder_has_begun(const ablation *a)
{
    char path[ABLATION_PATH], *text;
    if (!is_empty_folder(ablation_path(a, path, "runs"))) return true;
    if (!has_file(a, "losses.tsv")) return false;
    if (read_text(a, "losses.tsv", &text, NULL) != DSMOE_OK) return true;
    const char *line = strchr(text, '\n'); /* the first line is the hash of the data */
    bool measured = line && line[1];
    free(text);
    return measured;
}

/* Removes the files that a comparison makes before its first run: settings.txt last, because it shows that the
 * others are a comparison's. */
static void discard(const ablation *a)
{
    static const char *const names[] = {"losses.tsv",
                                        "data.cache",
                                        "ablation.json",
                                        "ablation.html",
                                        "tokenizer/tokenizer.json",
                                        "tokenizer/tokenizer_config.json"};
    char path[ABLATION_PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(ablation_path(a, path, "%s", names[i]));
    for (int i = 0; i < N_ARCHITECTURES; i++)
        unlink(ablation_path(a, path, "configs/%s.json", architectures[i].name));
    for (int i = 0; i < N_FOLDERS; i++) rmdir(ablation_path(a, path, "%s", folders[i]));
    unlink(ablation_path(a, path, "settings.txt"));
}

void ablation_folder_abandon(const ablation *a)
{
    char path[ABLATION_PATH];
    if (a->is_open && (ablation_folder_has_begun(a) || !ablation_is_alone(a))) return;
    if (a->is_open) discard(a);
    if (a->is_open) unlink(ablation_path(a, path, ".lock"));
    folder_unmake(a->options.out, a->made);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Runs save their paths, and may be resumed from another working directory. */
static dsmoe_status make_absolute(ablation *a, dsmoe_error *error)
{
    char path[PATH_MAX];
    if (!realpath(a->out, path))
        return status_fail(error, DSMOE_ERROR_IO, "%s: %s", a->out, strerror(errno));
    if (strlen(path) + ABLATION_NAME > DSMOE_PATH) /* a run takes no longer paths */
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: the path is too long", path);
    snprintf(a->out, sizeof a->out, "%s", path);
    return DSMOE_OK;
}

/* Refuses a folder inside the data: its files would count as data, which would change all the time. */
static dsmoe_status check_outside(const ablation *a, dsmoe_error *error)
{
    for (int i = 0; i < a->options.n_data; i++) {
        size_t length = strlen(a->data[i]);
        if (strncmp(a->out, a->data[i], length) != 0) continue;
        if (a->out[length] != '/' && a->out[length] != '\0') continue;
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: lies in the data, %s; choose a folder outside it", a->out,
                           a->data[i]);
    }
    return DSMOE_OK;
}

/* Whether a file has the settings of a comparison: its first line begins with --scale. */
static bool is_settings(const char *path)
{
    char begin[8] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool is_ours = fgets(begin, sizeof begin, file) && !strcmp(begin, "--scale");
    fclose(file);
    return is_ours;
}

/* Refuses a folder that has other files than those of a comparison. */
static dsmoe_status check_folder(const ablation *a, dsmoe_error *error)
{
    char path[ABLATION_PATH];
    STATUS_TRY(check_outside(a, error));
    if (has_file(a, "settings.json"))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: holds a training run; choose another folder", a->out);
    if (is_settings(ablation_path(a, path, "settings.txt"))) return DSMOE_OK;
    if (has_file(a, "losses.tsv") && has_file(a, "runs"))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: its settings.txt is missing or damaged: restore it, or choose "
                           "another folder",
                           a->out);
    return dsmoe_output_folder_check(a->out, NULL, 0, error);
}

/* Checks that the settings are those of the folder. If nothing has been trained there, they become the
 * folder's settings, and the files of an earlier start are removed. */
static dsmoe_status settle(ablation *a, dsmoe_error *error)
{
    char *text = ablation_settings_format(a);
    if (!text) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", a->out);
    a->has_begun = ablation_folder_has_begun(a) || !ablation_is_alone(a);
    if (!a->has_begun) discard(a);
    dsmoe_status status =
        has_file(a, "settings.txt")
            ? compare_settings(a, text, error)
            : partial_file_write_text(a->out, "settings.txt", put_text, text, error);
    free(text);
    return status;
}

dsmoe_status ablation_folder_open(ablation *a, dsmoe_error *error)
{
    char path[ABLATION_PATH];
    a->made = folder_missing(a->options.out);
    STATUS_TRY(folder_make(a->out, error));
    STATUS_TRY(make_absolute(a, error));
    dsmoe_status status = check_folder(a, error);
    if (status != DSMOE_OK && !has_file(a, ".lock")) return status;
    STATUS_TRY(ablation_share_begin(a, error));
    STATUS_TRY(ablation_take_files(a, error));
    STATUS_TRY(check_folder(a, error)); /* again: another process may have been preparing it */
    a->is_open = true;
    STATUS_TRY(settle(a, error));
    for (int i = 0; i < N_FOLDERS; i++)
        STATUS_TRY(folder_make(ablation_path(a, path, "%s", folders[i]), error));
    return DSMOE_OK;
}

/* ---- logs of runs ---------------------------------------------------------------------------- */

/* Opens the log of a run, whose path it puts into `path`. There may be nothing to read: a run begins with an
 * empty log, which stays empty if the process dies then. */
static dsmoe_status open_log(const ablation *a, int entry, int seed, char path[ABLATION_PATH],
                             line_reader *log, dsmoe_error *error)
{
    *log = (line_reader){0};
    ablation_path(a, path, "runs/%s-seed%d/metrics.jsonl", architectures[entry].name, seed + 1);
    if (access(path, F_OK) != 0) return DSMOE_OK;
    dsmoe_status status = line_reader_open(log, path, error);
    return is_empty_file(path) ? DSMOE_OK : status;
}

/* The hash of the data of a run; 0 if its log does not have it. */
static uint64_t read_run_hash(const ablation *a, int entry, int seed)
{
    char path[ABLATION_PATH];
    line_reader log;
    uint64_t hash = 0;
    if (open_log(a, entry, seed, path, &log, NULL) != DSMOE_OK) return 0;
    while (hash == 0 && line_reader_next(&log)) {
        const char *text = line_text(line_object(log.object, "data"), "hash");
        if (text) sscanf(text, "%16" SCNx64, &hash);
    }
    line_reader_close(&log);
    return hash;
}

/* Reads a line of metrics.jsonl. If a step has two lines, the later one counts. */
static void read_metrics_line(const ablation *a, ablation_run *run, const json_node *line)
{
    const char *type = line_text(line, "type");
    double step = line_number(line, "step"), loss = line_number(line, "loss");
    if (!type || !(step >= 0)) return;
    if (step == (double)a->options.steps && !strcmp(type, "end") && line_flag(line, "finished"))
        run->is_finished = true;
    if (strcmp(type, "eval") != 0 || isnan(loss)) return;
    while (run->n_curve > 0 && (double)run->curve[run->n_curve - 1].step >= step) run->n_curve--;
    if (run->n_curve == ABLATION_MAX_CURVE) return;
    run->curve[run->n_curve].step = (int64_t)step;
    run->curve[run->n_curve++].loss = loss;
}

/* A measured run counts as finished even if its log is incomplete: its large files may already be removed. */
dsmoe_status ablation_folder_read_run(ablation *a, int entry, int seed, dsmoe_error *error)
{
    ablation_run *run = &a->entries[entry].runs[seed];
    char path[ABLATION_PATH];
    line_reader log;
    run->is_finished = ablation_is_measured(&a->entries[entry], seed);
    run->n_curve = 0;
    STATUS_TRY(open_log(a, entry, seed, path, &log, error));
    while (line_reader_next(&log)) read_metrics_line(a, run, log.object);
    dsmoe_status status = line_reader_check(&log, path, error);
    line_reader_close(&log);
    return status;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Reads a line, given without its newline. A line that is not a valid loss is ignored: the loss is measured
 * again. */
static void read_loss(ablation *a, char *line)
{
    char *field[4] = {line};
    for (int i = 1; i < 4; i++) {
        field[i] = field[i - 1] + strcspn(field[i - 1], "\t");
        if (!*field[i]) return;
        *field[i]++ = '\0';
    }
    char *end, *seed_end;
    long seed = strtol(field[1], &seed_end, 10);
    double loss = strtod(field[3], &end);
    int entry = architecture_find(field[0]), which = loss_find(field[2]);
    if (entry < 0 || which < 0 || *seed_end || seed < 1 || seed > ABLATION_MAX_SEEDS) return;
    if (end == field[3] || *end || !isfinite(loss)) return;
    a->entries[entry].runs[seed - 1].losses[which] = loss;
    if (seed > a->n_seeds) a->n_seeds = (int)seed;
}

/* The first line has the hash of the data. */
static const char data_line[] = "data\t%016" PRIx64;

/* The hash in the first line; 0 if there is none. */
static uint64_t read_data_line(const char *text)
{
    uint64_t hash = 0;
    int length = 0;
    if (sscanf(text, "data\t%16" SCNx64 "%n", &hash, &length) != 1 || text[length] != '\n')
        return 0;
    return hash;
}

/* Without losses.tsv, the logs of the runs still know it. */
uint64_t ablation_folder_data_hash(const ablation *a)
{
    char *text;
    uint64_t hash = 0;
    if (!a->has_begun) return 0;
    if (read_text(a, "losses.tsv", &text, NULL) == DSMOE_OK) {
        hash = read_data_line(text);
        free(text);
    }
    for (int i = 0; hash == 0 && i < N_ARCHITECTURES; i++)
        for (int seed = 0; hash == 0 && seed < ABLATION_MAX_SEEDS; seed++)
            hash = read_run_hash(a, i, seed);
    return hash;
}

static dsmoe_status read_losses(ablation *a, char *text, dsmoe_error *error)
{
    uint64_t hash = read_data_line(text);
    if (hash == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s/losses.tsv: the file is damaged: restore it, or remove it to have "
                           "its losses measured again",
                           a->out);
    a->is_other = hash != dsmoe_dataset_get_info(a->dataset).hash;
    if (a->is_other)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: the losses there were measured with other data", a->out);
    char *line = strchr(text, '\n') + 1;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) { /* a line without end was cut */
        *end = '\0';
        read_loss(a, line);
    }
    return DSMOE_OK;
}

static void put_losses(FILE *file, const void *context)
{
    const ablation *a = context;
    char name[LOSS_NAME];
    fprintf(file, data_line, dsmoe_dataset_get_info(a->dataset).hash);
    fputc('\n', file);
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; seed < a->n_seeds; seed++)
            for (int which = 0; which < N_LOSSES; which++) {
                double loss = a->entries[i].runs[seed].losses[which];
                if (!isnan(loss))
                    fprintf(file, "%s\t%d\t%s\t%.17g\n", architectures[i].name, seed + 1,
                            loss_name(which, name), loss);
            }
}

/* Replaces the whole file, so that it is never half written. */
static dsmoe_status write_losses(const ablation *a, dsmoe_error *error)
{
    return partial_file_write_text(a->out, "losses.tsv", put_losses, a, error);
}

dsmoe_status ablation_folder_add(ablation *a, int entry, int seed, int which, double loss,
                                 dsmoe_error *error)
{
    STATUS_TRY(ablation_take_files(a, error));
    dsmoe_status status = ablation_folder_read(a, error); /* other processes may have added some */
    a->entries[entry].runs[seed].losses[which] = loss;
    if (status == DSMOE_OK) status = write_losses(a, error);
    ablation_leave_files(a);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

dsmoe_status ablation_folder_read(ablation *a, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    char *text;
    if (has_file(a, "losses.tsv")) {
        STATUS_TRY(read_text(a, "losses.tsv", &text, error));
        status = read_losses(a, text, error);
        free(text);
    } else {
        status = write_losses(a, error);
    }
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; status == DSMOE_OK && seed < a->n_seeds; seed++)
            status = ablation_folder_read_run(a, i, seed, error);
    return status;
}

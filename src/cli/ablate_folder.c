/* ablate_folder.c - the folder of `dsmoe ablate`:
 *
 *   settings.txt   what all runs have in common, a line each
 *   losses.tsv     every loss that was measured: model, seed, probe, loss
 *   tokenizer/, configs/NAME.json, runs/NAME-seedN/ */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ablate.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "report/lines.h"

bool ablate_path(const ablation *a, char path[ABLATE_PATH], const char *format, ...)
{
    int length = snprintf(path, ABLATE_PATH, "%s/", a->out);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(path + length, (size_t)(ABLATE_PATH - length), format, arguments);
    va_end(arguments);
    if (length < DSMOE_PATH) return true; /* more than a run takes */
    cli_failure("ablate", "%s: the path is too long", a->out);
    return false;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* The settings as text; to be freed. NULL without memory. */
static char *format_settings(const ablation *a)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (!file) return NULL;
    fprintf(file, "--scale %s\n", a->scale->name);
    fprintf(file, "--steps %" PRId64 "\n--batch %" PRId64 "\n--seq %" PRId64 "\n", a->steps,
            a->batch, a->seq);
    choices_put(file, &a->choices);
    if (*a->tokenizer_path)
        fprintf(file, "--tokenizer %s\n", a->tokenizer_path);
    else
        fprintf(file, "--vocab-size %" PRId64 "\n", a->vocab_size);
    fprintf(file, "--bad-bytes %s\n", a->options->bad_bytes);
    for (int i = 0; i < a->n_data; i++) fprintf(file, "--data %s\n", a->data[i]);
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

/* Files may have moved; whether they are still the same the tokens say. */
static bool names_file(const char *line) { return !strncmp(line, "--tokenizer ", 12); }

/* The next line that counts, its length into `length`, 0 after the last. So too with the text. */
static const char *next_setting(const char *text, size_t *length)
{
    while ((*length = strcspn(text, "\n")) > 0 && !strncmp(text, "--data ", 7))
        text += *length + (text[*length] == '\n');
    return text;
}

/* The first lines in which two texts differ are put into `ours` and `theirs`; false if none do. */
static bool find_difference(const char *our_text, const char *their_text, char ours[ABLATE_PATH],
                            char theirs[ABLATE_PATH])
{
    for (;;) {
        size_t n, m;
        our_text = next_setting(our_text, &n);
        their_text = next_setting(their_text, &m);
        snprintf(ours, ABLATE_PATH, "%.*s", (int)(n < DSMOE_PATH ? n : DSMOE_PATH), our_text);
        snprintf(theirs, ABLATE_PATH, "%.*s", (int)(m < DSMOE_PATH ? m : DSMOE_PATH), their_text);
        bool same = n == m && memcmp(our_text, their_text, n) == 0;
        if (!same && (!names_file(our_text) || !names_file(their_text))) return true;
        if (n == 0) return false;
        our_text += n + (our_text[n] == '\n');
        their_text += m + (their_text[m] == '\n');
    }
}

static int compare_settings(const ablation *a, const char *path, const char *text)
{
    char *there, ours[ABLATE_PATH], theirs[ABLATE_PATH];
    size_t length;
    int exit_code = cli_read_file("ablate", path, &there, &length);
    if (exit_code != CLI_OK) return exit_code;
    if (find_difference(text, there, ours, theirs))
        exit_code = cli_failure("ablate", "%s was made with %s, not with %s; name another --out",
                                a->out, *theirs ? theirs : "less", *ours ? ours : "less");
    free(there);
    return exit_code;
}

int ablate_write_file(const ablation *a, const char *name, partial_file_put_fn *put,
                      const void *context)
{
    dsmoe_error error;
    if (partial_file_write_text(a->out, name, put, context, &error) == DSMOE_OK) return CLI_OK;
    return cli_failure("ablate", "%s", error.message);
}

static void put_text(FILE *file, const void *context) { fputs(context, file); }

/* ---- a start that trains nothing ------------------------------------------------------------- */

static const char *const folders[] = {"tokenizer", "configs", "runs"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

static bool is_empty_folder(const char *path)
{
    DIR *list = opendir(path);
    if (!list) return errno == ENOENT;
    int n = 0;
    while (n < 3 && readdir(list)) n++;
    closedir(list);
    return n < 3; /* itself and the one above it */
}

bool ablate_folder_has_begun(const ablation *a)
{
    char path[ABLATE_PATH], *text;
    size_t length;
    if (!ablate_path(a, path, "runs") || !is_empty_folder(path)) return true;
    if (!ablate_path(a, path, "losses.tsv") || access(path, F_OK) != 0) return false;
    if (cli_read_file("ablate", path, &text, &length) != CLI_OK) return true;
    const char *line = strchr(text, '\n'); /* the first one is about the data */
    bool measured = line && line[1];
    free(text);
    return measured;
}

/* Removes what a comparison has before its first run. */
static void discard(const ablation *a)
{
    static const char *const names[] = {"settings.txt",
                                        "losses.tsv",
                                        "data.cache",
                                        "ablation.json",
                                        "ablation.html",
                                        "tokenizer/tokenizer.json",
                                        "tokenizer/tokenizer_config.json"};
    char path[ABLATE_PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ablate_path(a, path, "%s", names[i])) unlink(path);
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (ablate_path(a, path, "configs/%s.json", architectures[i].name)) unlink(path);
    for (int i = 0; i < N_FOLDERS; i++)
        if (ablate_path(a, path, "%s", folders[i])) rmdir(path);
}

/* Removes the folders that this call made, the innermost first, as far as they are empty. */
static void remove_made(const ablation *a)
{
    char path[DSMOE_PATH];
    memcpy(path, a->out, sizeof path);
    for (int n = 0; n < a->n_made;) {
        if (rmdir(path) == 0)
            n++;
        else if (errno != ENOENT)
            return;
        char *slash = strrchr(path, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

void ablate_folder_abandon(const ablation *a)
{
    if (!a->is_open || ablate_folder_has_begun(a)) return;
    discard(a);
    remove_made(a);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Makes a folder with those above it, and counts those that were not there. */
static int make_folders(const char *path, int *n_made)
{
    char at[DSMOE_PATH];
    struct stat info;
    snprintf(at, sizeof at, "%s", path);
    for (char *end = at; *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char after = *end;
        *end = '\0';
        if (mkdir(at, 0777) == 0)
            ++*n_made;
        else if (errno != EEXIST || stat(at, &info) != 0 || !S_ISDIR(info.st_mode))
            return cli_failure("ablate", "%s: %s", at,
                               errno == EEXIST ? "is not a folder" : strerror(errno));
        *end = after;
    }
    return CLI_OK;
}

/* Runs keep paths, and may be gone on with from elsewhere. */
static int make_absolute(ablation *a)
{
    char path[PATH_MAX];
    if (!realpath(a->out, path)) return cli_failure("ablate", "%s: %s", a->out, strerror(errno));
    if (snprintf(a->out, sizeof a->out, "%s", path) < DSMOE_PATH) return CLI_OK;
    return cli_failure("ablate", "%s: the path is too long", path);
}

/* A folder of data with the comparison in it would change all the time. */
static int check_outside(const ablation *a)
{
    for (int i = 0; i < a->n_data; i++) {
        size_t length = strlen(a->data[i]);
        if (strncmp(a->out, a->data[i], length) != 0) continue;
        if (a->out[length] != '/' && a->out[length] != '\0') continue;
        return cli_failure("ablate", "%s: lies in the data, %s; name a folder beside it", a->out,
                           a->data[i]);
    }
    return CLI_OK;
}

/* Whether a file is the settings of a comparison, as its first line says. */
static bool is_settings(const char *path)
{
    char begin[8] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool is_ours = fgets(begin, sizeof begin, file) && !strcmp(begin, "--scale");
    fclose(file);
    return is_ours;
}

/* Nothing of somebody else's is touched. */
static int check_folder(const ablation *a)
{
    char path[ABLATE_PATH];
    int exit_code = check_outside(a);
    if (exit_code == CLI_OK && ablate_path(a, path, "settings.json") && access(path, F_OK) == 0)
        exit_code = cli_failure("ablate", "%s: holds a training run; take another folder", a->out);
    if (exit_code == CLI_OK && ablate_path(a, path, "settings.txt") && !is_settings(path))
        exit_code = output_check_folder("ablate", a->out, NULL, 0);
    return exit_code;
}

/* The settings are those of the folder, or become them while nothing has been trained there: what an
 * earlier start left is made again. */
static int settle(ablation *a)
{
    char path[ABLATE_PATH];
    if (!ablate_path(a, path, "settings.txt")) return CLI_FAILURE;
    char *text = format_settings(a);
    if (!text) return cli_failure("ablate", "not enough memory");
    a->has_begun = ablate_folder_has_begun(a);
    if (!a->has_begun) discard(a);
    int exit_code = access(path, F_OK) == 0 ? compare_settings(a, path, text)
                                            : ablate_write_file(a, "settings.txt", put_text, text);
    free(text);
    return exit_code;
}

int ablate_folder_open(ablation *a)
{
    char path[ABLATE_PATH];
    int n_inner = 0;
    int exit_code = make_folders(a->out, &a->n_made);
    if (exit_code == CLI_OK) exit_code = make_absolute(a);
    if (exit_code == CLI_OK) exit_code = check_folder(a);
    if (exit_code != CLI_OK) {
        remove_made(a);
        return exit_code;
    }
    a->is_open = true;
    exit_code = settle(a);
    for (int i = 0; exit_code == CLI_OK && i < N_FOLDERS; i++)
        exit_code =
            ablate_path(a, path, "%s", folders[i]) ? make_folders(path, &n_inner) : CLI_FAILURE;
    return exit_code;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* One line without its end; what it should not have is passed over. */
static void read_loss(ablation *a, char *line)
{
    char *field[4] = {line};
    for (int i = 1; i < 4; i++) {
        field[i] = field[i - 1] + strcspn(field[i - 1], "\t");
        if (!*field[i]) return;
        *field[i]++ = '\0';
    }
    int64_t seed;
    char *end;
    double loss = strtod(field[3], &end);
    int entry = architecture_find(field[0]), which = loss_find(field[2]);
    if (entry < 0 || which < 0 || !cli_parse_int(field[1], 1, ABLATE_MAX_SEEDS, &seed)) return;
    if (end == field[3] || *end || !isfinite(loss)) return;
    a->entries[entry].runs[seed - 1].losses[which] = loss;
    if (seed > a->n_seeds) a->n_seeds = (int)seed;
}

/* The first line says which data it was. */
static const char data_line[] = "data\t%016" PRIx64;

uint64_t ablate_folder_data_hash(const ablation *a)
{
    char path[ABLATE_PATH], *text;
    size_t length;
    uint64_t hash = 0;
    if (!a->has_begun || !ablate_path(a, path, "losses.tsv") || access(path, F_OK) != 0) return 0;
    if (cli_read_file("ablate", path, &text, &length) != CLI_OK) return 0;
    if (sscanf(text, "data\t%16" SCNx64, &hash) != 1) hash = 0;
    free(text);
    return hash;
}

static int read_losses(ablation *a, char *text)
{
    char expected[32];
    snprintf(expected, sizeof expected, data_line, dsmoe_dataset_get_info(a->dataset).hash);
    char *save, *line = strtok_r(text, "\n", &save);
    if (!line || strcmp(line, expected) != 0)
        return cli_failure("ablate",
                           "%s: the data is no longer that of the losses there; name another --out",
                           a->out);
    while ((line = strtok_r(NULL, "\n", &save))) read_loss(a, line);
    return CLI_OK;
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

/* The whole file again, so that it is never half. */
static int write_losses(const ablation *a)
{
    return ablate_write_file(a, "losses.tsv", put_losses, a);
}

int ablate_folder_add(ablation *a, int entry, int seed, int which, double loss)
{
    a->entries[entry].runs[seed].losses[which] = loss;
    return write_losses(a);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A line of metrics.jsonl. Of two lines for one step the later counts. */
static void read_metrics_line(const ablation *a, ablate_run *run, const json_node *line)
{
    const char *type = line_text(line, "type");
    double step = line_number(line, "step"), loss = line_number(line, "loss");
    if (!type || !(step >= 0)) return;
    if (step == (double)a->steps && !strcmp(type, "end") && line_flag(line, "finished"))
        run->is_finished = true;
    if (strcmp(type, "eval") != 0 || isnan(loss)) return;
    while (run->n_curve > 0 && (double)run->curve[run->n_curve - 1].step >= step) run->n_curve--;
    if (run->n_curve == ABLATE_MAX_CURVE) return;
    run->curve[run->n_curve].step = (int64_t)step;
    run->curve[run->n_curve++].loss = loss;
}

/* What has been measured was finished, whatever its log lost: its large files may be gone. */
int ablate_folder_read_run(ablation *a, int entry, int seed)
{
    ablate_run *run = &a->entries[entry].runs[seed];
    char path[ABLATE_PATH];
    line_reader lines;
    dsmoe_error error;
    run->is_finished = ablate_is_measured(&a->entries[entry], seed);
    run->n_curve = 0;
    if (!ablate_path(a, path, "runs/%s-seed%d/metrics.jsonl", architectures[entry].name, seed + 1))
        return CLI_FAILURE;
    if (access(path, F_OK) != 0) return CLI_OK;
    dsmoe_status status = line_reader_open(&lines, path, &error);
    if (status == DSMOE_OK) {
        while (line_reader_next(&lines)) read_metrics_line(a, run, lines.object);
        status = line_reader_check(&lines, path, &error);
        line_reader_close(&lines);
    }
    return status == DSMOE_OK ? CLI_OK : cli_failure("ablate", "%s", error.message);
}

int ablate_folder_read(ablation *a)
{
    char path[ABLATE_PATH], *text;
    size_t length;
    int exit_code;
    if (!ablate_path(a, path, "losses.tsv")) return CLI_FAILURE;
    if (access(path, F_OK) == 0) {
        exit_code = cli_read_file("ablate", path, &text, &length);
        if (exit_code != CLI_OK) return exit_code;
        exit_code = read_losses(a, text);
        free(text);
    } else {
        exit_code = write_losses(a);
    }
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; exit_code == CLI_OK && seed < a->n_seeds; seed++)
            exit_code = ablate_folder_read_run(a, i, seed);
    return exit_code;
}

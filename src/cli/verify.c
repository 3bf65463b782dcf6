/* verify.c - `dsmoe verify`: checks the layer and whole models against references, a line per
 * tensor. */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/options.h"
#include "formats/json_write.h"

static const char help[] =
    "usage: dsmoe verify PATH... [options]\n"
    "\n"
    "Compares with numbers that were computed elsewhere (see docs/verify.md). A file is a reference\n"
    "layer file (safetensors): its MoE layer runs through inference, training and backward. A folder\n"
    "holds a model and its expected.safetensors: whole rows of token ids, odd pieces of them, single\n"
    "tokens and several rows together run through the model.\n"
    "'max rel' is the largest difference over the largest expected magnitude of the tensor.\n"
    "\n"
    "  -t, --threads N    threads to use (default: all processors)\n"
    "      --tolerance X  largest 'max rel' that is ok (default: 1e-5)\n"
    "      --quiet        only the tensors that are not ok, and the summaries\n"
    "      --json         print one JSON object\n"
    "  -h, --help         this text\n"
    "\n"
    "The exit code is 0 only if every tensor that was checked is within the tolerance. Tensors that\n"
    "cannot be checked are reported. Differences add up over steps of training: what comes after\n"
    "them may differ by ten times the tolerance.\n"
    "\n"
    "example:\n"
    "  dsmoe verify tests/data/layer/*.safetensors tests/data/lm/* --quiet\n";

typedef struct verify_options {
    double tolerance;
    int64_t n_threads;
    bool json, quiet;
} verify_options;

/* What has been checked so far of the present file or folder. */
typedef struct verify_progress {
    const verify_options *options;
    bool colour;
    int n_checks, n_failed, n_skipped, n_printed;
    double worst; /* largest max_rel over its tolerance; NaN beats all */
    double worst_rel, worst_tolerance;
    char worst_name[80];
    int n_alike; /* skipped in a row, with the same beginning of their names */
    char alike[80];
} verify_progress;

/* ---- one tensor ---------------------------------------------------------------------------- */

static void print_check(const verify_progress *progress, const dsmoe_check *check)
{
    const char *on = "", *off = "";
    if (progress->colour) {
        on = check->ok ? "\033[32m" : "\033[1;31m";
        off = "\033[0m";
    }
    printf("  %-36s max abs %-9.3g max rel %-9.3g %s%s%s\n", check->name, check->max_abs,
           check->max_rel, on, check->ok ? "ok" : "NOT OK", off);
}

/* "grad.*" for many, the name itself for one. */
static void print_skipped(verify_progress *progress)
{
    char name[96], how_many[32];
    const char *point = strchr(progress->alike, '.');
    if (progress->n_alike == 0) return;
    if (progress->n_alike == 1)
        snprintf(name, sizeof name, "%s", progress->alike);
    else
        snprintf(name, sizeof name, "%.*s.*", (int)(point - progress->alike), progress->alike);
    snprintf(how_many, sizeof how_many, "%d tensors", progress->n_alike);
    printf("  %-36s %-35s not checked\n", name, progress->n_alike == 1 ? "" : how_many);
    progress->n_alike = 0;
}

/* Collects tensors that follow each other and have the same kind of name into one line. */
static void skip(verify_progress *progress, const dsmoe_check *check)
{
    const char *point = strchr(check->name, '.');
    size_t length = point ? (size_t)(point - check->name) + 1 : 0;
    bool same =
        progress->n_alike > 0 && length > 0 && !strncmp(check->name, progress->alike, length);
    if (!same) {
        print_skipped(progress);
        snprintf(progress->alike, sizeof progress->alike, "%s", check->name);
    }
    progress->n_alike++;
}

/* JSON has neither NaN nor infinity. */
static void print_json_number(double number)
{
    if (isfinite(number))
        printf("%.9g", number);
    else
        printf("null");
}

static void print_json_check(const verify_progress *progress, const dsmoe_check *check)
{
    printf("%s\n{\"name\":", progress->n_printed ? "," : "");
    json_write_string(stdout, check->name);
    if (check->skipped) {
        printf(",\"skipped\":true}");
        return;
    }
    printf(",\"max_abs\":");
    print_json_number(check->max_abs);
    printf(",\"max_rel\":");
    print_json_number(check->max_rel);
    printf(",\"ok\":%s}", check->ok ? "true" : "false");
}

static void count(verify_progress *progress, const dsmoe_check *check)
{
    if (check->skipped) {
        progress->n_skipped++;
        return;
    }
    double share = check->max_rel / check->tolerance;
    if (progress->n_checks == 0 || isnan(share) || share > progress->worst) {
        progress->worst = share;
        progress->worst_rel = check->max_rel;
        progress->worst_tolerance = check->tolerance;
        snprintf(progress->worst_name, sizeof progress->worst_name, "%s", check->name);
    }
    progress->n_checks++;
    progress->n_failed += !check->ok;
}

static void on_check(void *context, const dsmoe_check *check)
{
    verify_progress *progress = context;
    count(progress, check);
    if (progress->options->quiet && (check->ok || check->skipped)) return;
    if (progress->options->json) {
        print_json_check(progress, check);
    } else if (check->skipped) {
        skip(progress, check);
    } else {
        print_skipped(progress);
        print_check(progress, check);
    }
    progress->n_printed++;
}

/* ---- one file or folder -------------------------------------------------------------------- */

static dsmoe_status check_path(const char *path, verify_progress *progress, bool *all_ok,
                               dsmoe_error *error)
{
    struct stat info;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const verify_options *options = progress->options;
    *all_ok = false;
    dsmoe_status status = (folder ? dsmoe_verify_model_folder : dsmoe_verify_layer_file)(
        path, options->tolerance, (int)options->n_threads, on_check, progress, all_ok, error);
    print_skipped(progress);
    return status;
}

/* Ends the summary with the number of tensors that were not checked. */
static void print_skipped_count(const verify_progress *progress)
{
    if (progress->n_skipped > 0) printf("; %d not checked", progress->n_skipped);
    printf("\n");
}

static bool verify_path(const char *path, const verify_options *options)
{
    verify_progress progress = {.options = options, .colour = cli_wants_colour(stdout)};
    bool all_ok;
    dsmoe_error error = {0};
    printf("%s\n", path);
    fflush(stdout);
    if (check_path(path, &progress, &all_ok, &error) != DSMOE_OK) {
        fflush(stdout); /* before the message, in case both go to the same place */
        cli_failure("verify", "%s", error.message);
        printf("  NOT OK: it could not be checked\n");
    } else if (all_ok) {
        printf("  ok: %d tensors, the worst is %s at %.3g of at most %g", progress.n_checks,
               progress.worst_name, progress.worst_rel, progress.worst_tolerance);
        print_skipped_count(&progress);
    } else {
        printf("  NOT OK: %d of %d tensors, the worst is %s at %.3g of at most %g",
               progress.n_failed, progress.n_checks, progress.worst_name, progress.worst_rel,
               progress.worst_tolerance);
        print_skipped_count(&progress);
    }
    return all_ok;
}

static bool verify_path_json(const char *path, const verify_options *options)
{
    verify_progress progress = {.options = options};
    bool all_ok;
    dsmoe_error error = {0};
    printf("{\"path\":");
    json_write_string(stdout, path);
    printf(",\"checks\":[");
    bool ran = check_path(path, &progress, &all_ok, &error) == DSMOE_OK;
    printf("]");
    if (!ran) {
        printf(",\"error\":");
        json_write_string(stdout, error.message);
        cli_failure("verify", "%s", error.message);
    }
    printf(",\"skipped\":%d,\"ok\":%s}", progress.n_skipped, all_ok ? "true" : "false");
    return all_ok;
}

/* ---- the command --------------------------------------------------------------------------- */

static bool verify_all(const option_words *paths, const verify_options *options)
{
    int n_ok = 0;
    for (int i = 0; i < paths->count; i++) n_ok += verify_path(paths->at[i], options);
    if (n_ok == paths->count)
        printf("%d of %d files ok\n", n_ok, paths->count);
    else
        printf("%d of %d files NOT OK\n", paths->count - n_ok, paths->count);
    return n_ok == paths->count;
}

static bool verify_all_json(const option_words *paths, const verify_options *options)
{
    int n_ok = 0;
    printf("{\"tolerance\":%.9g,\"files\":[", options->tolerance);
    for (int i = 0; i < paths->count; i++) {
        printf(i ? ",\n" : "\n");
        n_ok += verify_path_json(paths->at[i], options);
    }
    printf("],\"ok\":%s}\n", n_ok == paths->count ? "true" : "false");
    return n_ok == paths->count;
}

int command_verify(int argc, char **argv)
{
    verify_options options = {.tolerance = 1e-5, .n_threads = dsmoe_machine_threads()};
    const option_row rows[] = {
        {"--threads", "-t", OPTION_INTEGER, &options.n_threads, 1, CLI_MAX_THREADS},
        {"--tolerance", NULL, OPTION_NUMBER, &options.tolerance, 0, INFINITY},
        {"--quiet", NULL, OPTION_FLAG, &options.quiet, 0, 0},
        {"--json", NULL, OPTION_FLAG, &options.json, 0, 0},
    };
    option_words paths = {.at = malloc((size_t)argc * sizeof *paths.at), .capacity = argc};
    if (!paths.at) return cli_failure("verify", "out of memory");
    int code = options_parse("verify", help, rows, sizeof rows / sizeof *rows, argc, argv, &paths);
    if (code < 0 && paths.count == 0)
        code = cli_usage("verify",
                         "no reference files or model folders: name them, as in dsmoe verify "
                         "tests/data/lm/base");
    if (code < 0)
        code =
            (options.json ? verify_all_json : verify_all)(&paths, &options) ? CLI_OK : CLI_FAILURE;
    free(paths.at);
    return code;
}

/* verify.c - `dsmoe verify`: checks the layer against reference files, a line per tensor. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: dsmoe verify FILE... [options]\n"
    "\n"
    "Runs the MoE layer of each reference layer file (safetensors, see docs/verify.md) through\n"
    "inference, training and backward, and compares what comes out with what the file expects.\n"
    "'max rel' is the largest difference over the largest expected magnitude of the tensor.\n"
    "\n"
    "  -t, --threads N    threads to use (default: all processors)\n"
    "      --tolerance X  largest 'max rel' that is ok (default: 1e-5)\n"
    "      --quiet        only the tensors that are not ok, and the summaries\n"
    "      --json         one JSON object on the output\n"
    "  -h, --help         this text\n"
    "\n"
    "The exit code is 0 only if every tensor of every file is within the tolerance.\n"
    "\n"
    "example:\n"
    "  dsmoe verify tests/data/layer/*.safetensors --quiet\n";

typedef struct verify_options {
    double tolerance;
    int n_threads;
    bool json, quiet;
} verify_options;

/* What has been seen of the file at hand. */
typedef struct verify_progress {
    const verify_options *options;
    bool colour;
    int n_checks, n_failed, n_printed;
    double worst; /* largest max_rel; NaN beats all */
    char worst_name[80];
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

/* JSON knows neither NaN nor infinity. */
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
    cli_print_json_string(stdout, check->name);
    printf(",\"max_abs\":");
    print_json_number(check->max_abs);
    printf(",\"max_rel\":");
    print_json_number(check->max_rel);
    printf(",\"ok\":%s}", check->ok ? "true" : "false");
}

static void on_check(void *context, const dsmoe_check *check)
{
    verify_progress *progress = context;
    if (progress->n_checks == 0 || isnan(check->max_rel) || check->max_rel > progress->worst) {
        progress->worst = check->max_rel;
        snprintf(progress->worst_name, sizeof progress->worst_name, "%s", check->name);
    }
    progress->n_checks++;
    progress->n_failed += !check->ok;
    if (progress->options->quiet && check->ok) return;
    if (progress->options->json)
        print_json_check(progress, check);
    else
        print_check(progress, check);
    progress->n_printed++;
}

/* ---- one file ------------------------------------------------------------------------------ */

static dsmoe_status check_file(const char *path, verify_progress *progress, bool *all_ok,
                               dsmoe_error *error)
{
    struct stat info;
    *all_ok = false;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        error->status = DSMOE_ERROR_IO;
        snprintf(error->message, sizeof error->message,
                 "%s: a directory, where a reference layer file (safetensors) is expected", path);
        return error->status;
    }
    const verify_options *options = progress->options;
    return dsmoe_verify_layer_file(path, options->tolerance, options->n_threads, on_check, progress,
                                   all_ok, error);
}

static bool verify_file(const char *path, const verify_options *options)
{
    verify_progress progress = {.options = options, .colour = cli_wants_colour(stdout)};
    bool all_ok;
    dsmoe_error error = {0};
    printf("%s\n", path);
    fflush(stdout);
    if (check_file(path, &progress, &all_ok, &error) != DSMOE_OK) {
        fflush(stdout); /* before the message, should both go to one place */
        cli_failure("verify", "%s", error.message);
        printf("  NOT OK: the file could not be checked\n");
    } else if (all_ok) {
        printf("  ok: %d tensors within %g, the worst is %s at %.3g\n", progress.n_checks,
               options->tolerance, progress.worst_name, progress.worst);
    } else {
        printf("  NOT OK: %d of %d tensors beyond %g, the worst is %s at %.3g\n", progress.n_failed,
               progress.n_checks, options->tolerance, progress.worst_name, progress.worst);
    }
    return all_ok;
}

static bool verify_file_json(const char *path, const verify_options *options)
{
    verify_progress progress = {.options = options};
    bool all_ok;
    dsmoe_error error = {0};
    printf("{\"path\":");
    cli_print_json_string(stdout, path);
    printf(",\"checks\":[");
    bool ran = check_file(path, &progress, &all_ok, &error) == DSMOE_OK;
    printf("]");
    if (!ran) {
        printf(",\"error\":");
        cli_print_json_string(stdout, error.message);
        cli_failure("verify", "%s", error.message);
    }
    printf(",\"ok\":%s}", all_ok ? "true" : "false");
    return all_ok;
}

/* ---- the command --------------------------------------------------------------------------- */

static bool verify_files(char **paths, int n_paths, const verify_options *options)
{
    int n_ok = 0;
    for (int i = 0; i < n_paths; i++) n_ok += verify_file(paths[i], options);
    if (n_ok == n_paths)
        printf("%d of %d files ok\n", n_ok, n_paths);
    else
        printf("%d of %d files NOT OK\n", n_paths - n_ok, n_paths);
    return n_ok == n_paths;
}

static bool verify_files_json(char **paths, int n_paths, const verify_options *options)
{
    int n_ok = 0;
    printf("{\"tolerance\":%.9g,\"files\":[", options->tolerance);
    for (int i = 0; i < n_paths; i++) {
        printf(i ? ",\n" : "\n");
        n_ok += verify_file_json(paths[i], options);
    }
    printf("],\"ok\":%s}\n", n_ok == n_paths ? "true" : "false");
    return n_ok == n_paths;
}

static bool parse_tolerance(const char *text, double *tolerance)
{
    char *end;
    errno = 0;
    *tolerance = strtod(text, &end);
    return end != text && *end == '\0' && errno == 0 && isfinite(*tolerance) && *tolerance >= 0;
}

/* CLI_OK, or the exit code of a usage error. */
static int parse_options(int argc, char **argv, verify_options *options, bool *wants_help)
{
    enum { TOLERANCE = 256, JSON, QUIET };
    static const struct option names[] = {
        {"threads", required_argument, NULL, 't'},
        {"tolerance", required_argument, NULL, TOLERANCE},
        {"json", no_argument, NULL, JSON},
        {"quiet", no_argument, NULL, QUIET},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int64_t number;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":t:h", names, NULL)) != -1;) {
        switch (option) {
        case 't':
            if (!cli_parse_int(optarg, 1, 4096, &number))
                return cli_usage("verify", "--threads must be from 1 to 4096, not '%s'", optarg);
            options->n_threads = (int)number;
            break;
        case TOLERANCE:
            if (!parse_tolerance(optarg, &options->tolerance))
                return cli_usage("verify", "--tolerance must be a number from 0 up, not '%s'",
                                 optarg);
            break;
        case JSON: options->json = true; break;
        case QUIET: options->quiet = true; break;
        case 'h': *wants_help = true; return CLI_OK;
        case ':': return cli_usage("verify", "%s needs a value", argv[optind - 1]);
        default: return cli_usage("verify", "there is no option '%s'", argv[optind - 1]);
        }
    }
    return CLI_OK;
}

int command_verify(int argc, char **argv)
{
    verify_options options = {.tolerance = 1e-5, .n_threads = dsmoe_machine_threads()};
    bool wants_help = false;
    int code = parse_options(argc, argv, &options, &wants_help);
    if (code != CLI_OK) return code;
    if (wants_help) {
        fputs(help, stdout);
        return CLI_OK;
    }
    if (optind == argc) return cli_usage("verify", "which reference layer files?");
    bool ok =
        (options.json ? verify_files_json : verify_files)(argv + optind, argc - optind, &options);
    return ok ? CLI_OK : CLI_FAILURE;
}

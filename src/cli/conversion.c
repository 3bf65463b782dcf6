/* conversion.c - writing a model to disk, with a bar and a summary. */
#include "cli/conversion.h"

#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/model_path.h"
#include "cli/table.h"

/* A generous size for metadata, headers and the small files next to the weights. */
static const double bytes_beside = 16e6;

bool conversion_to_gguf(const char *target)
{
    size_t length = strlen(target);
    return length >= 5 && !strcmp(target + length - 5, ".gguf");
}

conversion conversion_start(const char *command, const char *label, const char *target)
{
    cli_catch_interrupt();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error, like a full disk */
    return (conversion){.command = command,
                        .target = target,
                        .bar = progress_start(label, "bytes"),
                        .start = cli_seconds()};
}

/* Bytes that the disk of the target has left; -1: unknown. */
static double bytes_left(const char *target)
{
    struct statvfs disk;
    char *copy = strdup(target);
    if (!copy) return -1;
    int failed = statvfs(target, &disk); /* fails if the target does not exist yet */
    if (failed) failed = statvfs(dirname(copy), &disk);
    free(copy);
    return failed ? -1 : (double)disk.f_bavail * (double)disk.f_frsize;
}

bool conversion_progress(void *context, double done, double total)
{
    conversion *c = context;
    if (!c->started) {
        double left = bytes_left(c->target);
        if (left >= 0 && left < total + bytes_beside) {
            c->needed = total;
            c->available = left;
            return false;
        }
        if (c->announce) c->announce(c->context, total);
        c->started = true;
    }
    progress_update(&c->bar, done, total);
    return !cli_interrupted();
}

int conversion_failure(conversion *c, const dsmoe_error *error)
{
    progress_finish(&c->bar);
    char needed[CLI_BYTES], left[CLI_BYTES];
    if (c->needed > 0)
        return cli_failure(c->command, "%s: the model needs %s, and the disk has %s left",
                           c->target, cli_format_bytes(c->needed, needed),
                           cli_format_bytes(c->available, left));
    bool is_about_type = error->status == DSMOE_ERROR_ARGUMENT; /* others were checked before */
    if (error->status != DSMOE_ERROR_STOPPED)
        return cli_error(c->command, is_about_type && !c->merge ? "--type" : NULL, error);
    cli_failure(c->command, "interrupted; what was written is removed");
    return CLI_INTERRUPTED;
}

/* Prints types in order of falling number of tensors. */
static void print_types(const int64_t counts[], int n_types)
{
    bool printed[16] = {false};
    const char *before = "";
    for (;;) {
        int most = -1;
        for (int i = 0; i < n_types; i++)
            if (!printed[i] && counts[i] > 0 && (most < 0 || counts[i] > counts[most])) most = i;
        if (most < 0) break;
        printf("%s%lld %s", before, (long long)counts[most], dsmoe_dtype_name((dsmoe_dtype)most));
        printed[most] = true;
        before = ", ";
    }
}

static void print_summary(const conversion *c, const dsmoe_model *model)
{
    int64_t counts[DSMOE_N_DTYPES] = {0}, numbers = 0;
    double bytes = 0;
    size_t n = dsmoe_model_tensor_count(model);
    for (size_t i = 0; i < n; i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(model, i);
        counts[t.dtype]++;
        bytes += (double)t.size;
        numbers += t.n_dims == 2 ? t.shape[0] * t.shape[1] : t.shape[0];
    }
    char size[CLI_BYTES];
    printf("%s: %s of weights, %.2f bits per weight, tensors: ", c->target,
           cli_format_bytes(bytes, size), 8 * bytes / (double)numbers);
    print_types(counts, DSMOE_N_DTYPES);
    printf("; %.1f s\n", cli_seconds() - c->start);
}

/* Opens the written model as any program would. */
int conversion_summary(conversion *c)
{
    progress_finish(&c->bar);
    dsmoe_model *model;
    dsmoe_error error;
    if (dsmoe_model_open(c->target, &model, &error) != DSMOE_OK)
        return cli_failure(c->command, "%s", error.message);
    print_summary(c, model);
    dsmoe_model_free(model);
    return CLI_OK;
}

/* ---- converting a model ----------------------------------------------------------------------- */

typedef struct source_view {
    const char *command, *from;
    dsmoe_dtype has;    /* the type that most bytes have */
    const char *wanted; /* NULL: as it is */
    dsmoe_type_changes changes;
} source_view;

dsmoe_dtype conversion_main_type(const dsmoe_model *model)
{
    double bytes[DSMOE_N_DTYPES] = {0};
    dsmoe_dtype most = DSMOE_F32;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(model, i);
        bytes[t.dtype] += (double)t.size;
        if (bytes[t.dtype] > bytes[most]) most = t.dtype;
    }
    return most;
}

/* False if it is not a model, which the conversion will report. */
static bool view_source(source_view *view)
{
    dsmoe_model *model;
    if (dsmoe_model_open(view->from, &model, NULL) != DSMOE_OK) return false;
    view->has = conversion_main_type(model);
    dsmoe_model_free(model);
    return true;
}

/* Warns of a tokenizer's file that neither form of a model keeps. */
static void tell_left_out(const source_view *v)
{
    char path[DSMOE_PATH + 32];
    snprintf(path, sizeof path, "%s/special_tokens_map.json", v->from);
    if (access(path, F_OK) == 0)
        cli_note(v->command, "%s: special_tokens_map.json is not copied", v->from);
}

static void warn_of_quantised(const source_view *v)
{
    const dsmoe_type_changes *n = &v->changes;
    if (!v->wanted || n->n_kept + n->n_larger + n->n_requantised == 0) return;
    char effect[128] = "such matrices are copied as they are";
    if (n->n_requantised > 0)
        snprintf(effect, sizeof effect,
                 "%s adds its own error; start from the model it was made from", v->wanted);
    else if (n->n_larger > 0)
        snprintf(effect, sizeof effect, "as %s it is larger and no better", v->wanted);
    cli_note(v->command, "%s is already quantised (%s): %s", v->from, dsmoe_dtype_name(v->has),
             effect);
}

static void announce(const void *context, double unused)
{
    (void)unused;
    warn_of_quantised(context);
    tell_left_out(context);
}

int conversion_run(conversion *c, const char *from, dsmoe_convert_options options)
{
    dsmoe_error error;
    model_path found;
    int exit_code = model_path_find(c->command, &from, &found);
    if (exit_code != CLI_OK) return exit_code;
    source_view view = {.command = c->command, .from = from, .wanted = options.type};
    int64_t n_without = 0, n_weighed = 0;
    if (view_source(&view)) c->announce = announce;
    c->context = &view;
    options.progress = conversion_progress;
    options.context = c;
    options.n_without_importance = &n_without;
    options.n_weighed = &n_weighed;
    options.changes = &view.changes;
    dsmoe_status status =
        c->merge ? dsmoe_merge(from, c->merge->path, c->merge->scale, c->target, &options, &error)
                 : dsmoe_convert(from, c->target, &options, &error);
    if (status != DSMOE_OK) return conversion_failure(c, &error);
    exit_code = conversion_summary(c);
    if (n_without > 0)
        cli_note(c->command,
                 "%s: %lld of %lld matrices are not in it and were quantised without it; was it "
                 "made for this model?",
                 options.imatrix, (long long)n_without, (long long)n_weighed);
    return exit_code;
}

/* metrics.c - writes metrics.jsonl and the event file next to it during a run. */
#include "report/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/utf8.h"
#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "formats/mapped_file.h"
#include "report/append_file.h"
#include "report/events.h"
#include "report/lines.h"

struct metrics {
    append_file lines;
    events *events;
};

/* ---- opening ------------------------------------------------------------------------------- */

/* Copies the lines of an earlier part of the run that are still valid: those up to `step`. */
static dsmoe_status copy_lines(const char *path, int64_t step, partial_file *out,
                               dsmoe_error *error)
{
    struct stat info;
    if (step == 0 || (stat(path, &info) != 0 && errno == ENOENT)) return DSMOE_OK;
    if (S_ISREG(info.st_mode) && info.st_size == 0) return DSMOE_OK;
    line_reader reader;
    STATUS_TRY(line_reader_open(&reader, path, error));
    dsmoe_status status = DSMOE_OK;
    while (status == DSMOE_OK && line_reader_next(&reader)) {
        if (!reader.object || !reader.whole) continue;
        if (line_number(reader.object, "step") > (double)step) continue; /* false for NAN */
        status = partial_file_write(out, reader.text, reader.length + 1, error);
    }
    if (status == DSMOE_OK) status = line_reader_check(&reader, path, error);
    line_reader_close(&reader);
    return status;
}

/* Replaces the file instead of cutting it, because a report may be reading the old file. */
static dsmoe_status replace_lines(const char *path, int64_t step, dsmoe_error *error)
{
    partial_file out;
    STATUS_TRY(partial_file_create(&out, path, error));
    dsmoe_status status = copy_lines(path, step, &out, error);
    if (status == DSMOE_OK) return partial_file_finish(&out, error);
    partial_file_abandon(&out);
    return status;
}

dsmoe_status metrics_open(const char *folder, int64_t step, metrics **out, dsmoe_error *error)
{
    *out = NULL;
    metrics *m = calloc(1, sizeof *m);
    char *path = m ? mapped_file_path(folder, "metrics.jsonl") : NULL;
    if (!path) {
        free(m);
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    }
    dsmoe_status status = replace_lines(path, step, error);
    if (status == DSMOE_OK)
        status = append_file_open(&m->lines, path, false, error);
    else
        free(path);
    if (status == DSMOE_OK) status = events_open(folder, step, &m->events, error);
    if (status != DSMOE_OK) {
        metrics_close(m);
        return status;
    }
    *out = m;
    return DSMOE_OK;
}

dsmoe_status metrics_sync(metrics *m, dsmoe_error *error)
{
    STATUS_TRY(append_file_sync(&m->lines, error));
    return events_sync(m->events, error);
}

/* Whether a run's metrics.jsonl has a line for which `is_wanted` is true. */
typedef bool line_test_fn(const json_node *line, const char *type, int64_t step);
static bool find_line(const char *folder, line_test_fn *is_wanted, int64_t step)
{
    char *path = mapped_file_path(folder, "metrics.jsonl");
    line_reader reader;
    bool found = false;
    if (path && line_reader_open(&reader, path, NULL) == DSMOE_OK) {
        while (!found && line_reader_next(&reader)) {
            const char *type = line_text(reader.object, "type");
            found = reader.whole && type && is_wanted(reader.object, type, step);
        }
        line_reader_close(&reader);
    }
    free(path);
    return found;
}

static bool is_last_line(const json_node *line, const char *type, int64_t step)
{
    return !strcmp(type, "end") && line_flag(line, "finished") &&
           line_number(line, "step") == (double)step;
}

bool metrics_is_finished(const char *folder, int64_t step)
{
    return find_line(folder, is_last_line, step);
}

/* A run that ended after a step left a checkpoint. A run that began after a step was resumed from one. */
static bool tells_of_checkpoint(const json_node *line, const char *type, int64_t step)
{
    return (!strcmp(type, "start") || !strcmp(type, "end")) &&
           line_number(line, "step") > (double)step;
}

bool metrics_shows_saved(const char *folder) { return find_line(folder, tells_of_checkpoint, 0); }

void metrics_close(metrics *m)
{
    if (!m) return;
    append_file_close(&m->lines);
    events_close(m->events);
    free(m);
}

/* ---- values -------------------------------------------------------------------------------- */

static void put_number(FILE *text, double number)
{
    if (isfinite(number))
        json_write_number(text, number);
    else
        fputs("null", text);
}

/* Writes six digits, which is as many as are of interest. */
static void put_rounded(FILE *text, double number)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.6g", number);
    put_number(text, isfinite(number) ? strtod(digits, NULL) : number);
}

static void put_step_number(FILE *text, int64_t step) { fprintf(text, ",\"step\":%" PRId64, step); }

static void put_member(FILE *text, const char *key, double number)
{
    fprintf(text, ",\"%s\":", key);
    put_rounded(text, number);
}

/* A copy of the text to free(), with U+FFFD for each byte that is not part of a character: a model may write
 * half a character, which neither JSON nor an event may contain. */
static char *whole_text(const char *string)
{
    const char *end = string + strlen(string);
    char *whole = malloc(3 * (size_t)(end - string) + 1), *next = whole;
    if (!whole) return NULL;
    for (const char *at = string; at < end;) {
        size_t size = utf8_character(at, (size_t)(end - at));
        const char *from = size ? at : "\xef\xbf\xbd";
        size_t n = size ? size : 3;
        memcpy(next, from, n);
        next += n;
        at += size ? size : 1;
    }
    *next = '\0';
    return whole;
}

/* ---- lines --------------------------------------------------------------------------------- */

dsmoe_status metrics_put_line(metrics *m, const char *type, metrics_members_fn *put,
                              const void *context, dsmoe_error *error)
{
    char *line = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&line, &length);
    bool complete = text != NULL;
    if (text) {
        fputs("{\"type\":", text);
        json_write_string(text, type);
        put(text, context);
        fputs("}\n", text);
        complete = !ferror(text);
        complete = fclose(text) == 0 && complete;
    }
    char *whole = complete ? whole_text(line) : NULL;
    dsmoe_status status =
        whole ? append_file_write(&m->lines, whole, strlen(whole), error)
              : status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", m->lines.path);
    free(whole);
    free(line);
    return status;
}

static void put_step(FILE *text, const void *context)
{
    const metrics_step *s = context;
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    put_step_number(text, s->step);
    fprintf(text, ",\"tokens\":%" PRId64 ",\"loss\":", s->tokens);
    put_number(text, s->loss);
    put_member(text, "aux_loss", s->aux_loss);
    fputs(",\"aux_loss_layers\":[", text);
    for (int64_t i = 0; i < s->n_layers; i++) {
        if (i) fputc(',', text);
        put_rounded(text, (double)s->layers[i].aux_loss);
    }
    fputc(']', text);
    put_member(text, "device_loss", s->device_loss);
    put_member(text, "lr", s->lr);
    put_member(text, "grad_norm", s->grad_norm);
    put_member(text, "tokens_per_s", s->tokens_per_s);
    put_member(text, "imbalance", s->imbalance);
    fprintf(text, ",\"skipped\":%" PRId64 ",\"time\":%lld.%03ld", s->skipped, (long long)now.tv_sec,
            now.tv_nsec / 1000000);
    if (s->has_pairs) {
        put_member(text, "accuracy", s->accuracy);
        put_member(text, "margin", s->margin);
    }
    if (!s->has_ranks) return;
    put_member(text, "computing", s->computing);
    put_member(text, "sending", s->sending);
    put_member(text, "waiting", s->waiting);
}

dsmoe_status metrics_put_step(metrics *m, const metrics_step *s, dsmoe_error *error)
{
    STATUS_TRY(metrics_put_line(m, "step", put_step, s, error));
    events_begin(m->events, s->step);
    events_scalar(m->events, "loss/train", s->loss);
    if (s->has_pairs) events_scalar(m->events, "preferences/accuracy", s->accuracy);
    if (s->has_pairs) events_scalar(m->events, "preferences/margin", s->margin);
    events_scalar(m->events, "learning_rate", s->lr);
    events_scalar(m->events, "grad_norm", s->grad_norm);
    events_scalar(m->events, "tokens_per_s", s->tokens_per_s);
    events_scalar(m->events, "skipped", (double)s->skipped);
    events_scalar(m->events, "balance/imbalance", s->imbalance);
    events_scalar(m->events, "balance/aux_loss", s->aux_loss);
    events_scalar(m->events, "balance/device_loss", s->device_loss);
    for (int64_t i = 0; i < s->n_layers; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "balance_by_layer/moe_layer_%02" PRId64, i);
        events_scalar(m->events, tag, (double)s->layers[i].aux_loss);
    }
    return events_end(m->events, error);
}

/* ---- load ---------------------------------------------------------------------------------- */

typedef struct load_line {
    int64_t step;
    const int64_t *load;
    int64_t n_layers, n_experts;
} load_line;

/* The mean of some counts; 1 if all are 0, so that it can be a divisor. */
static double mean_count(const int64_t *counts, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)counts[i];
    return sum > 0 ? sum / (double)n : 1;
}

/* Writes an array of the counts divided by `unit`, with four digits after the point. */
static void put_ratios(FILE *text, const int64_t *counts, int64_t n, double unit)
{
    fputc('[', text);
    for (int64_t i = 0; i < n; i++) {
        if (i) fputc(',', text);
        put_number(text, rint(1e4 * (double)counts[i] / unit) / 1e4);
    }
    fputc(']', text);
}

static void put_load(FILE *text, const void *context)
{
    const load_line *line = context;
    put_step_number(text, line->step);
    fputs(",\"load\":[", text);
    for (int64_t l = 0; l < line->n_layers; l++) {
        const int64_t *counts = line->load + l * line->n_experts;
        if (l) fputc(',', text);
        put_ratios(text, counts, line->n_experts, mean_count(counts, line->n_experts));
    }
    fputc(']', text);
}

dsmoe_status metrics_put_load(metrics *m, int64_t step, const int64_t *load, int64_t n_layers,
                              int64_t n_experts, dsmoe_error *error)
{
    if (n_layers <= 0 || n_experts <= 0) return DSMOE_OK; /* every layer is dense */
    load_line line = {step, load, n_layers, n_experts};
    STATUS_TRY(metrics_put_line(m, "load", put_load, &line, error));
    double *ratios = calloc((size_t)n_experts, sizeof *ratios);
    if (!ratios) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", m->lines.path);
    events_begin(m->events, step);
    for (int64_t l = 0; l < n_layers; l++) {
        char tag[64];
        const int64_t *counts = load + l * n_experts;
        double mean = mean_count(counts, n_experts);
        for (int64_t e = 0; e < n_experts; e++) ratios[e] = (double)counts[e] / mean;
        snprintf(tag, sizeof tag, "expert_load/moe_layer_%02" PRId64, l);
        events_histogram(m->events, tag, ratios, (size_t)n_experts);
    }
    free(ratios);
    return events_end(m->events, error);
}

/* ---- bias ---------------------------------------------------------------------------------- */

typedef struct bias_line {
    int64_t step;
    const metrics_range *ranges;
    int64_t n_layers;
} bias_line;

static void put_bias(FILE *text, const void *context)
{
    const bias_line *line = context;
    put_step_number(text, line->step);
    for (int high = 0; high < 2; high++) {
        fprintf(text, ",\"%s\":[", high ? "high" : "low");
        for (int64_t i = 0; i < line->n_layers; i++) {
            if (i) fputc(',', text);
            put_rounded(text, (double)(high ? line->ranges[i].high : line->ranges[i].low));
        }
        fputc(']', text);
    }
}

dsmoe_status metrics_put_bias(metrics *m, int64_t step, const metrics_range *ranges,
                              int64_t n_layers, dsmoe_error *error)
{
    bias_line line = {step, ranges, n_layers};
    STATUS_TRY(metrics_put_line(m, "bias", put_bias, &line, error));
    events_begin(m->events, step);
    for (int64_t i = 0; i < n_layers; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "bias_spread/moe_layer_%02" PRId64, i);
        events_scalar(m->events, tag, (double)ranges[i].high - (double)ranges[i].low);
    }
    return events_end(m->events, error);
}

/* ---- routing ------------------------------------------------------------------------------- */

typedef struct routing_line {
    int64_t step;
    const char *const *kinds;
    int n_kinds;
    const int64_t *counts;
    int64_t n_layers, n_experts;
} routing_line;

static void put_routing(FILE *text, const void *context)
{
    const routing_line *line = context;
    put_step_number(text, line->step);
    fputs(",\"kinds\":[", text);
    for (int k = 0; k < line->n_kinds; k++) {
        if (k) fputc(',', text);
        json_write_string(text, line->kinds[k]);
    }
    fputs("],\"load\":[", text);
    for (int64_t l = 0; l < line->n_layers; l++) {
        fputs(l ? ",[" : "[", text);
        for (int k = 0; k < line->n_kinds; k++) {
            const int64_t *counts = line->counts + (l * line->n_kinds + k) * line->n_experts;
            double sum = mean_count(counts, line->n_experts) * (double)line->n_experts;
            if (k) fputc(',', text);
            put_ratios(text, counts, line->n_experts, sum);
        }
        fputc(']', text);
    }
    fputc(']', text);
}

dsmoe_status metrics_put_routing(metrics *m, int64_t step, const char *const *kinds, int n_kinds,
                                 const int64_t *counts, int64_t n_layers, int64_t n_experts,
                                 dsmoe_error *error)
{
    routing_line line = {step, kinds, n_kinds, counts, n_layers, n_experts};
    return metrics_put_line(m, "routing", put_routing, &line, error);
}

/* ---- held-out loss, samples, skipped steps ------------------------------------------------- */

/* Whether the name of a kind came before: JSON readers refuse a line that has a key twice. */
static bool is_repeated(const char *const *names, int index)
{
    for (int i = 0; i < index; i++)
        if (!strcmp(names[i], names[index])) return true;
    return false;
}

static void put_eval(FILE *text, const void *context)
{
    const metrics_eval *line = context;
    put_step_number(text, line->step);
    fputs(",\"loss\":", text);
    put_number(text, line->loss);
    if (line->has_pairs) {
        put_member(text, "accuracy", line->accuracy);
        put_member(text, "margin", line->margin);
    }
    if (line->n_kinds == 0) return;
    fputs(",\"kinds\":{", text);
    for (int k = 0; k < line->n_kinds; k++) {
        if (is_repeated(line->kinds, k)) continue;
        if (k) fputc(',', text);
        json_write_string(text, line->kinds[k]);
        fputc(':', text);
        put_number(text, line->losses[k]);
    }
    fputc('}', text);
}

dsmoe_status metrics_put_eval(metrics *m, const metrics_eval *e, dsmoe_error *error)
{
    STATUS_TRY(metrics_put_line(m, "eval", put_eval, e, error));
    events_begin(m->events, e->step);
    events_scalar(m->events, "loss/held_out", e->loss);
    if (e->has_pairs) events_scalar(m->events, "preferences/held_out_accuracy", e->accuracy);
    if (e->has_pairs) events_scalar(m->events, "preferences/held_out_margin", e->margin);
    for (int k = 0; k < e->n_kinds; k++) {
        char cut[128];
        snprintf(cut, sizeof cut, "loss_by_kind/%s", e->kinds[k]);
        char *tag = whole_text(cut);
        if (tag) events_scalar(m->events, tag, e->losses[k]);
        free(tag);
    }
    return events_end(m->events, error);
}

typedef struct text_line {
    int64_t step;
    const char *keys[2], *texts[2];
    int n;
} text_line;

static void put_texts(FILE *text, const void *context)
{
    const text_line *line = context;
    put_step_number(text, line->step);
    for (int i = 0; i < line->n; i++) {
        fprintf(text, ",\"%s\":", line->keys[i]);
        json_write_string(text, line->texts[i]);
    }
}

dsmoe_status metrics_put_sample(metrics *m, int64_t step, const char *prompt, const char *sample,
                                dsmoe_error *error)
{
    text_line line = {step, {"prompt", "text"}, {prompt, sample}, 2};
    return metrics_put_line(m, "sample", put_texts, &line, error);
}

dsmoe_status metrics_put_skip(metrics *m, int64_t step, const char *reason, dsmoe_error *error)
{
    text_line line = {step, {"reason"}, {reason}, 1};
    return metrics_put_line(m, "skip", put_texts, &line, error);
}

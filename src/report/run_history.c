/* run_history.c - reads a metrics.jsonl for a report. */
#include "report/run_history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/lines.h"

enum {
    CHART_POINTS = 1024, /* more than a chart has pixels */
    LAYER_POINTS = 128,  /* of a line among many */
};

/* The state that is only needed while reading. */
typedef struct reading {
    run_history *run;
    line_reader lines;
    double last_time; /* of the last start or step line; NAN before the first */
    bool out_of_memory;
} reading;

/* ---- kinds of lines ------------------------------------------------------------------------- */

/* Keeps the current line in place of an older one. */
static void keep(reading *r, json_node **place)
{
    json_node_free(*place);
    *place = line_reader_take(&r->lines);
}

static void read_start(reading *r, const json_node *line)
{
    r->run->n_starts++;
    r->run->ended = r->run->finished = false;
    r->last_time = line_number(line, "time");
    double step = line_number(line, "step");
    r->run->step_before = step > 0 ? step : 0;
    r->run->seconds_before = r->run->seconds;
    keep(r, &r->run->start);
}

static void read_end(reading *r, const json_node *line)
{
    r->run->ended = true;
    r->run->finished = line_flag(line, "finished");
}

/* The series of the i-th layer, where *n layers have one; made if it is new. NULL if there can be no more. */
static series *layer_series(reading *r, series *layers, size_t *n, size_t i)
{
    if (i >= RUN_MAX_LAYERS) return NULL;
    if (i < *n) return &layers[i];
    if (!series_init(&layers[i], LAYER_POINTS)) {
        r->out_of_memory = true;
        return NULL;
    }
    *n = i + 1;
    return &layers[i];
}

static void read_layers(reading *r, double step, const json_node *losses)
{
    run_history *run = r->run;
    for (size_t i = 0; i < line_count(losses); i++) {
        series *s = layer_series(r, run->aux_layers, &run->n_aux_layers, i);
        if (!s) return;
        series_add(s, step, line_item(losses, i));
    }
}

static void read_bias(reading *r, const json_node *line)
{
    run_history *run = r->run;
    const json_node *lows = line_array(line, "low"), *highs = line_array(line, "high");
    double step = line_number(line, "step"), lowest = NAN, highest = NAN;
    if (!(step >= 0)) return;
    for (size_t i = 0; i < line_count(lows) && i < line_count(highs); i++) {
        double low = line_item(lows, i), high = line_item(highs, i);
        series *s = layer_series(r, run->bias_layers, &run->n_bias_layers, i);
        if (!s) break;
        series_add(s, step, high - low);
        lowest = fmin(lowest, low); /* fmin and fmax ignore NAN */
        highest = fmax(highest, high);
    }
    series_add(&run->numbers[RUN_BIAS_LOW], step, lowest);
    series_add(&run->numbers[RUN_BIAS_HIGH], step, highest);
}

/* Reads how a rank spent its time: seconds become shares. */
static void read_times(reading *r, double step, const json_node *line)
{
    static const char *const keys[] = {"computing", "sending", "waiting"};
    double seconds[3], sum = 0;
    for (int i = 0; i < 3; i++) sum += seconds[i] = line_number(line, keys[i]);
    for (int i = 0; i < 3 && sum > 0; i++) /* false for NAN */
        series_add(&r->run->numbers[RUN_COMPUTING + i], step, seconds[i] / sum);
}

static void read_step(reading *r, const json_node *line)
{
    static const struct {
        const char *key;
        run_number number;
    } keys[] = {{"loss", RUN_LOSS},
                {"aux_loss", RUN_AUX_LOSS},
                {"device_loss", RUN_DEVICE_LOSS},
                {"lr", RUN_LR},
                {"grad_norm", RUN_GRAD_NORM},
                {"tokens_per_s", RUN_TOKENS_PER_S},
                {"imbalance", RUN_IMBALANCE},
                {"accuracy", RUN_ACCURACY},
                {"margin", RUN_MARGIN}};
    run_history *run = r->run;
    double step = line_number(line, "step"), now = line_number(line, "time");
    if (!(step >= 0)) return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        series_add(&run->numbers[keys[i].number], step, line_number(line, keys[i].key));
    read_times(r, step, line);
    read_layers(r, step, line_array(line, "aux_loss_layers"));
    run->step = step;
    run->tokens = line_number(line, "tokens");
    run->skipped = line_number(line, "skipped");
    if (now > r->last_time) run->seconds += now - r->last_time; /* false for NAN */
    r->last_time = now;
}

static size_t find_kind(reading *r, const char *name)
{
    run_history *run = r->run;
    for (size_t k = 0; k < run->n_kinds; k++)
        if (!strcmp(run->kinds[k], name)) return k;
    if (run->n_kinds == RUN_MAX_KINDS) return RUN_MAX_KINDS;
    char *copy = strdup(name);
    if (!copy || !series_init(&run->kind_loss[run->n_kinds], LAYER_POINTS)) {
        free(copy);
        r->out_of_memory = true;
        return RUN_MAX_KINDS;
    }
    run->kinds[run->n_kinds] = copy;
    return run->n_kinds++;
}

typedef struct eval_visit {
    reading *reading;
    double step;
    const json_node *kinds;
} eval_visit;

static dsmoe_status visit_kind(void *context, const char *name, const json_node *value,
                               dsmoe_error *error)
{
    eval_visit *visit = context;
    (void)value;
    (void)error;
    size_t k = find_kind(visit->reading, name);
    if (k < RUN_MAX_KINDS)
        series_add(&visit->reading->run->kind_loss[k], visit->step,
                   line_number(visit->kinds, name));
    return DSMOE_OK;
}

static void read_eval(reading *r, const json_node *line)
{
    run_history *run = r->run;
    double step = line_number(line, "step"), loss = line_number(line, "loss");
    if (!(step >= 0)) return;
    series_add(&run->numbers[RUN_HELD_OUT], step, loss);
    if (loss < run->best || (isnan(run->best) && isfinite(loss))) {
        run->best = loss;
        run->best_step = step;
    }
    const json_node *kinds = line_object(line, "kinds");
    eval_visit visit = {r, step, kinds};
    if (kinds) json_node_each(kinds, visit_kind, &visit, NULL);
}

/* Keeps every sample_every-th sample, and after these the last one. */
static void read_sample(reading *r, const json_node *line)
{
    run_history *run = r->run;
    if (!line_text(line, "text") || !(line_number(line, "step") >= 0)) return;
    bool last_is_extra = run->samples_seen > 0 && (run->samples_seen - 1) % run->sample_every != 0;
    if (last_is_extra) json_node_free(run->samples[--run->n_samples]);
    if (run->n_samples == RUN_MAX_SAMPLES) {
        for (size_t i = 1; i < run->n_samples; i += 2) json_node_free(run->samples[i]);
        for (size_t i = 0; 2 * i < run->n_samples; i++) run->samples[i] = run->samples[2 * i];
        run->n_samples = (run->n_samples + 1) / 2;
        run->sample_every *= 2;
    }
    run->samples[run->n_samples++] = line_reader_take(&r->lines);
    run->samples_seen++;
}

static void read_skip(reading *r, const json_node *line)
{
    if (r->run->n_skips == RUN_MAX_SKIPS || !(line_number(line, "step") >= 0)) return;
    r->run->skips[r->run->n_skips++] = line_reader_take(&r->lines);
}

size_t run_history_devices(const run_history *run)
{
    const char *parallel = line_text(run->start, "parallel");
    bool divided = parallel && !strcmp(parallel, "experts");
    double n = divided ? line_number(run->start, "ranks")
                       : line_number(line_object(run->start, "settings"), "device_groups");
    return n > 1 && n < 1e6 ? (size_t)n : 0;
}

/* The rows for the experts of a layer's busiest device over the mean; NAN if the layer has no rows. */
static double device_rows(const json_node *layer, size_t n_devices)
{
    size_t n = line_count(layer);
    double most = 0, all = 0;
    for (size_t d = 0; d < n_devices; d++) {
        double rows = 0;
        for (size_t e = n * d / n_devices; e < n * (d + 1) / n_devices; e++)
            rows += line_item(layer, e);
        most = fmax(most, rows);
        all += rows;
    }
    return all > 0 ? most * (double)n_devices / all : (double)NAN;
}

static void read_device_rows(reading *r, const json_node *line)
{
    const json_node *load = line_array(line, "load");
    size_t n_devices = run_history_devices(r->run);
    double worst = NAN;
    for (size_t i = 0; n_devices > 0 && i < line_count(load); i++)
        worst = fmax(worst, device_rows(line_item_array(load, i), n_devices));
    if (worst > 0) series_add(&r->run->numbers[RUN_DEVICE_ROWS], line_number(line, "step"), worst);
}

static void read_load(reading *r, const json_node *line)
{
    read_device_rows(r, line);
    if (!load_history_add(&r->run->load, line_number(line, "step"), line_array(line, "load")))
        r->out_of_memory = true;
}

static void read_routing(reading *r, const json_node *line)
{
    (void)line;
    keep(r, &r->run->routing);
}

/* ---- the file ------------------------------------------------------------------------------- */

/* False if it is not a line of a run. */
static bool read_line(reading *r)
{
    static const struct {
        const char *type;
        void (*read)(reading *r, const json_node *line);
    } types[] = {{"bias", read_bias},   {"step", read_step}, {"load", read_load},
                 {"eval", read_eval},   {"skip", read_skip}, {"sample", read_sample},
                 {"start", read_start}, {"end", read_end},   {"routing", read_routing}};
    const json_node *line = r->lines.object;
    const char *type = line_text(line, "type");
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].type)) {
            types[i].read(r, line);
            return true;
        }
    return type != NULL; /* a type that later versions write */
}

static bool prepare(run_history *run)
{
    *run =
        (run_history){.step = NAN, .tokens = NAN, .skipped = NAN, .best = NAN, .sample_every = 1};
    for (int i = 0; i < RUN_NUMBERS; i++)
        if (!series_init(&run->numbers[i], CHART_POINTS)) return false;
    return true;
}

static void read_lines(reading *r)
{
    run_history *run = r->run;
    while (!r->out_of_memory && line_reader_next(&r->lines)) {
        run->n_lines++;
        if (read_line(r) || !r->lines.whole) continue;
        if (run->n_unreadable++ == 0) run->first_unreadable = r->lines.number;
    }
}

dsmoe_status run_history_parse(run_history *run, line_reader lines, const char *name,
                               dsmoe_error *error)
{
    reading r = {.run = run, .lines = lines, .last_time = NAN};
    r.out_of_memory = !prepare(run);
    if (!r.out_of_memory) read_lines(&r);
    dsmoe_status status = line_reader_check(&r.lines, name, error);
    line_reader_close(&r.lines);
    if (r.out_of_memory)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", name);
    else if (status == DSMOE_OK && !run->start && isnan(run->step))
        status =
            status_fail(error, DSMOE_ERROR_FORMAT,
                        "%s: not the metrics of a run: it has no \"start\" or \"step\" line", name);
    if (status != DSMOE_OK) run_history_free(run);
    return status;
}

dsmoe_status run_history_read(run_history *run, const char *path, dsmoe_error *error)
{
    line_reader lines;
    *run = (run_history){0};
    STATUS_TRY(line_reader_open(&lines, path, error));
    return run_history_parse(run, lines, path, error);
}

void run_history_free(run_history *run)
{
    json_node_free(run->start);
    json_node_free(run->routing);
    for (int i = 0; i < RUN_NUMBERS; i++) series_free(&run->numbers[i]);
    for (size_t i = 0; i < RUN_MAX_LAYERS; i++) {
        series_free(&run->aux_layers[i]);
        series_free(&run->bias_layers[i]);
    }
    for (size_t i = 0; i < RUN_MAX_KINDS; i++) {
        free(run->kinds[i]);
        series_free(&run->kind_loss[i]);
    }
    for (size_t i = 0; i < run->n_samples; i++) json_node_free(run->samples[i]);
    for (size_t i = 0; i < run->n_skips; i++) json_node_free(run->skips[i]);
    load_history_free(&run->load);
    *run = (run_history){0};
}

size_t run_history_layer(const run_history *run, size_t i)
{
    const json_node *config = line_object(run->start, "config");
    double first = line_number(config, "first_k_dense_replace");
    double every = line_number(config, "moe_layer_freq");
    if (!(first >= 0 && first < 1e6)) first = 0;
    if (!(every >= 1 && every < 1e6)) every = 1;
    return (size_t)(ceil(first / every) * every) + i * (size_t)every;
}

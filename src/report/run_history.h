/* run_history.h - a metrics.jsonl as a report needs it: thinned to what a page can show, in memory that does
 * not grow with the file. */
#ifndef DSMOE_REPORT_RUN_HISTORY_H
#define DSMOE_REPORT_RUN_HISTORY_H

#include "formats/json.h"
#include "report/lines.h"
#include "report/load_history.h"
#include "report/series.h"

/* Numbers over the steps. They are from step lines unless noted, the held-out loss is from eval lines. */
typedef enum run_number {
    RUN_LOSS,
    RUN_AUX_LOSS,
    RUN_DEVICE_LOSS,
    RUN_LR,
    RUN_GRAD_NORM,
    RUN_TOKENS_PER_S,
    RUN_IMBALANCE,
    RUN_ACCURACY, /* with preferences */
    RUN_MARGIN,
    RUN_COMPUTING, /* with several ranks: shares of the time */
    RUN_SENDING,
    RUN_WAITING,
    RUN_DEVICE_ROWS, /* from load lines: rows of the busiest device over the mean */
    RUN_BIAS_LOW,    /* from bias lines: the lowest and the highest of all layers */
    RUN_BIAS_HIGH,
    RUN_HELD_OUT,
    RUN_NUMBERS,
} run_number;

enum { RUN_MAX_LAYERS = 128, RUN_MAX_KINDS = 16, RUN_MAX_SAMPLES = 12, RUN_MAX_SKIPS = 64 };

typedef struct run_history {
    json_node *start;   /* the last start line, or NULL */
    json_node *routing; /* the last routing line, or NULL */
    size_t n_starts;
    bool ended, finished; /* what the last start or end line says */

    double step, tokens, skipped;       /* of the last step line */
    double seconds;                     /* spent on steps */
    double step_before, seconds_before; /* at the last start */
    double best, best_step;             /* held-out loss; NAN if there is none */
    series numbers[RUN_NUMBERS];
    series aux_layers[RUN_MAX_LAYERS], bias_layers[RUN_MAX_LAYERS]; /* bias: high minus low */
    size_t n_aux_layers, n_bias_layers;
    load_history load;

    char *kinds[RUN_MAX_KINDS];
    series kind_loss[RUN_MAX_KINDS];
    size_t n_kinds;

    /* Lines: samples spread over the run, among them the first and the last, and the first skips. */
    json_node *samples[RUN_MAX_SAMPLES + 1];
    size_t n_samples, sample_every, samples_seen;
    json_node *skips[RUN_MAX_SKIPS];
    size_t n_skips;

    size_t n_lines, n_unreadable, first_unreadable; /* half a line at the end does not count */
} run_history;

/* An unreadable line is counted and left out; a file without any line of a run is an error. */
dsmoe_status run_history_read(run_history *run, const char *path, dsmoe_error *error);
/* The same for an open line reader, which it closes; `name` is for messages. */
dsmoe_status run_history_parse(run_history *run, line_reader lines, const char *name,
                               dsmoe_error *error);
void run_history_free(run_history *run);

/* How many devices share the experts: ranks, or groups of the device-level balance loss; 0: none. */
size_t run_history_devices(const run_history *run);

/* Which layer of the model the i-th MoE layer is. */
size_t run_history_layer(const run_history *run, size_t i);

#endif

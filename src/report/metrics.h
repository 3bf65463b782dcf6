/* metrics.h - the log of a run: metrics.jsonl, a line of JSON for each event, and a TensorBoard event file
 * with the same numbers. report.html is made from metrics.jsonl.
 *
 * Lines have a "type":
 *   start    time, version, step (where it begins), parameters, active_parameters, threads, config
 *            {…}, settings {…}, data {n_tokens, n_train, n_held_out, …}
 *   change   step, settings {"key": [before, after], …}: the settings that a resumed run changes
 *   step     step, tokens (so far), loss, aux_loss, aux_loss_layers [..], device_loss (means since the
 *            last step line), lr, grad_norm, tokens_per_s, imbalance, skipped (so far), time;
 *            with several ranks also seconds: computing, sending, waiting; with preferences also accuracy
 *            and margin
 *   load     step, load [layer][expert]: tokens that chose it since the last load line, over the mean
 *   bias     step, low [layer], high [layer]: the lowest and the highest correction bias of each layer's
 *            experts; only if the gates have a bias (topk_method noaux_tc)
 *   eval     step, loss, kinds {"name": loss, …} (may be absent); with preferences also accuracy and margin
 *   sample   step, prompt, text
 *   skip     step, reason
 *   routing  step, kinds ["name", …], load [layer][kind][expert]: share of the kind's choices
 *   end      step, finished, loss, held_out_loss
 * Numbers that are not finite are null; times are seconds since 1970. */
#ifndef DSMOE_REPORT_METRICS_H
#define DSMOE_REPORT_METRICS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct metrics metrics;

/* Opens the log of a run that continues after `step` steps. Lines of later steps and a half line at the end
 * are dropped. 0: a new run; an old file is replaced. */
dsmoe_status metrics_open(const char *folder, int64_t step, metrics **m, dsmoe_error *error);
void metrics_close(metrics *m); /* NULL is allowed */
/* Returns when what was written so far has reached the disk. */
dsmoe_status metrics_sync(metrics *m, dsmoe_error *error);
/* Whether a run's metrics.jsonl has an "end" line of that step which says that the run is finished. */
bool metrics_is_finished(const char *folder, int64_t step);
/* Whether a run's metrics.jsonl shows that the run has had a checkpoint. */
bool metrics_shows_saved(const char *folder);

typedef struct metrics_step {
    int64_t step, tokens, skipped;
    double loss, aux_loss, device_loss, lr, grad_norm, tokens_per_s, imbalance;
    const dsmoe_layer_losses *layers; /* [n_layers] */
    int64_t n_layers;
    bool has_pairs;          /* training on preferences */
    double accuracy, margin; /* with preferences, as in dsmoe_batch_losses */
    bool has_ranks;          /* several ranks: then also rank 0's seconds since the last line */
    double computing, sending, waiting;
} metrics_step;

/* Each of these appends one line, unbuffered. A failed write is an error that names the file. */
dsmoe_status metrics_put_step(metrics *m, const metrics_step *step, dsmoe_error *error);
/* load [n_layers, n_experts]: tokens that chose each expert. */
dsmoe_status metrics_put_load(metrics *m, int64_t step, const int64_t *load, int64_t n_layers,
                              int64_t n_experts, dsmoe_error *error);
typedef struct metrics_range {
    float low, high;
} metrics_range;
/* ranges [n_layers]: of the biases of each layer's experts. */
dsmoe_status metrics_put_bias(metrics *m, int64_t step, const metrics_range *ranges,
                              int64_t n_layers, dsmoe_error *error);
typedef struct metrics_eval {
    int64_t step;
    double loss;
    const char *const *kinds; /* names and losses; n_kinds may be 0 */
    const double *losses;
    int n_kinds;
    bool has_pairs;          /* training on preferences */
    double accuracy, margin; /* with preferences */
} metrics_eval;
dsmoe_status metrics_put_eval(metrics *m, const metrics_eval *eval, dsmoe_error *error);
dsmoe_status metrics_put_sample(metrics *m, int64_t step, const char *prompt, const char *text,
                                dsmoe_error *error);
dsmoe_status metrics_put_skip(metrics *m, int64_t step, const char *reason, dsmoe_error *error);
/* counts [n_layers, n_kinds, n_experts] */
dsmoe_status metrics_put_routing(metrics *m, int64_t step, const char *const *kinds, int n_kinds,
                                 const int64_t *counts, int64_t n_layers, int64_t n_experts,
                                 dsmoe_error *error);
/* Appends a line of another type. `put` writes its members after "type", beginning with a comma. */
typedef void metrics_members_fn(FILE *text, const void *context);
dsmoe_status metrics_put_line(metrics *m, const char *type, metrics_members_fn *put,
                              const void *context, dsmoe_error *error);

#endif

/* run.c - a training run: the loop, and work that is due after a step.
 *
 * Checkpoints are written every `save_every` steps and at the end. Only these are measured on the held-out
 * text (unless eval_every is 0), and the one with the lowest loss is the best. If the run was stopped while
 * measuring, it measures first when it is resumed. A checkpoint that is written because the run is stopped
 * does not compete for the best, so a run that was stopped has the same best as one that was not. The
 * checkpoint at which patience ended the run does compete.
 * After a skipped step the model may be broken, so no checkpoint is written there, except at the end or on
 * request. */
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/greet.h"
#include "train/team.h"
#include "train/units.h"

enum { MAX_SKIPPED_IN_ROW = 10 };

/* ---- a step ---------------------------------------------------------------------------------- */

static void add_losses(run *r, const dsmoe_batch_losses *batch)
{
    double share = 1.0 / (double)r->settings.accumulate;
    r->losses.loss += share * batch->loss;
    r->losses.accuracy += share * batch->accuracy;
    r->losses.margin += share * batch->margin;
    r->losses.aux_loss += share * batch->aux_loss;
    r->losses.device_loss += share * batch->device_loss;
    for (int64_t i = 0; i < r->plan.n_moe_layers; i++) {
        r->layer_losses[i].aux_loss += (float)(share * (double)batch->layers[i].aux_loss);
        r->layer_losses[i].device_loss += (float)(share * (double)batch->layers[i].device_loss);
    }
}

/* The arrays of a batch, and the divisors for sums over its targets (or preferences) and tokens: the
 * step's number of them, divided by its number of batches. They are the same for all batches of plain
 * text. */
static dsmoe_batch describe_batch(const run *r)
{
    const dsmoe_run_settings *s = &r->settings;
    dsmoe_batch batch = {.tokens = r->tokens, .targets = r->targets, .positions = r->positions};
    if (!r->positions) return batch;
    int64_t n_targets, n_tokens;
    dsmoe_dataset_count(r->dataset, r->state.sequences, s->batch * s->accumulate, &n_targets,
                        &n_tokens);
    batch.n_targets = (double)n_targets / (double)s->accumulate;
    batch.n_tokens = (double)n_tokens / (double)s->accumulate;
    if (r->data.has_pairs) batch.beta = s->dpo_beta;
    return batch;
}

/* Runs the batches of a step. If a number is not finite, `reason` is filled, and the update is skipped. */
static dsmoe_status run_batches(run *r, dsmoe_error *reason, dsmoe_error *error)
{
    r->losses = (dsmoe_batch_losses){.layers = r->layer_losses};
    memset(r->layer_losses, 0, (size_t)r->plan.n_moe_layers * sizeof *r->layer_losses);
    const dsmoe_batch batch = describe_batch(r);
    for (int64_t i = 0, n; i < r->settings.accumulate; i += n) {
        n = moe_min(peers_size(r->peers), r->settings.accumulate - i);
        dsmoe_dataset_train(r->dataset, r->state.sequences, n * r->settings.batch, r->tokens,
                            r->targets, r->positions);
        STATUS_TRY(dsmoe_dataset_check(r->dataset, error));
        r->state.sequences += n * r->settings.batch;
        dsmoe_error why;
        dsmoe_status status = team_backward(r->trainer, (int)n, &batch, &why);
        if (status != DSMOE_OK && status != DSMOE_ERROR_NONFINITE)
            return status_fail(error, status, "%s", why.message);
        if (status != DSMOE_OK && !reason->status) *reason = why;
        for (int unit = 0; unit < n; unit++) {
            dsmoe_batch_losses losses = units_losses(r->trainer, unit);
            add_losses(r, &losses);
        }
    }
    return DSMOE_OK;
}

static dsmoe_status count_skip(run *r, const dsmoe_error *reason, dsmoe_error *error)
{
    const char *why = reason->status ? reason->message : "the gradient is not finite";
    r->state.n_skipped++;
    run_log_skip(r, why);
    if (++r->n_skipped_in_row < MAX_SKIPPED_IN_ROW) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_NONFINITE,
                       "%d steps in a row were skipped (%s): a lower learning rate may help",
                       MAX_SKIPPED_IN_ROW, why);
}

static dsmoe_status run_step(run *r, dsmoe_error *error)
{
    double start = clock_seconds();
    dsmoe_error reason = {0}, stop;
    dsmoe_update update = {0};
    timed_peers_take(&r->trainer->timed); /* discards time between steps */
    r->lr = dsmoe_schedule_lr(&r->schedule, r->state.step);
    STATUS_TRY(run_batches(r, &reason, error));
    STATUS_TRY(team_update(r->trainer, r->lr, &update, &stop, error));
    if (stop.status != DSMOE_OK) { /* another rank wants to stop */
        r->stopped = true;
        run_message(r, "%s", stop.message);
    }
    r->grad_norm = update.grad_norm;
    r->state.step++;
    r->state.loss = update.skipped ? NAN : r->losses.loss;
    r->held_out_loss = NAN;
    if (update.skipped)
        STATUS_TRY(count_skip(r, &reason, error));
    else
        r->n_skipped_in_row = 0;
    run_log_step(r, clock_seconds() - start);
    return DSMOE_OK;
}

/* ---- work due after a step ------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static bool is_end(const run *r) { return r->state.step >= r->settings.steps; }

static bool evaluates(const run *r)
{
    return r->settings.eval_every > 0 && settings_holds_out(&r->settings);
}

/* Whether the last checkpoint still has to be measured because the run was interrupted. */
static bool is_pending(const run *r)
{
    return r->saved_step >= 0 && r->saved_step == r->state.step && evaluates(r) &&
           !r->is_measured && (r->state.is_due || run_awaits_evaluation(r));
}

bool run_is_done(const run *r)
{
    return r->saved_step >= 0 &&
           (run_is_enough(r) || ((is_end(r) || run_is_out_of_patience(r)) && !is_pending(r)));
}

/* A report is made from all lines of the run, which takes ever longer. So it is made at most every quarter
 * of a minute, and takes at most a few per cent of the time. */
static bool report_is_due(const run *r)
{
    double since = clock_seconds() - r->reported;
    return is_due(r->settings.report_every, r->state.step) && since > 15.0 &&
           since > 30.0 * r->report_seconds;
}

/* A failure does not affect the run; the page is then an older one. */
static void refresh_report(run *r)
{
    dsmoe_error error;
    double start = clock_seconds();
    dsmoe_status status = dsmoe_report_run(r->folder, &error);
    r->reported = clock_seconds();
    r->report_seconds = r->reported - start;
    if (status == DSMOE_OK)
        run_path(r->folder, "report.html", r->report, NULL);
    else
        run_message(r, "the report could not be written: %s", error.message);
}

static dsmoe_status save(run *r, bool is_due_now, dsmoe_error *error)
{
    checkpoint_state *s = &r->state;
    const checkpoint_options options = {.base = r->tuning.base ? r->settings.init : NULL,
                                        .tokenizer = r->tokenizer ? r->folder : NULL,
                                        .dtype = settings_dtype(&r->settings),
                                        .interval_layers = r->interval.layers,
                                        .n_interval_layers = r->plan.n_moe_layers};
    char path[CHECKPOINT_PATH];
    dsmoe_error reason;
    s->is_due = is_due_now;
    s->logged_loss = r->logged_loss;
    s->interval_n = r->interval.n;
    s->interval_loss = r->interval.loss;
    s->interval_aux_loss = r->interval.aux_loss;
    s->interval_device_loss = r->interval.device_loss;
    s->interval_accuracy = r->interval.accuracy;
    s->interval_margin = r->interval.margin;
    strncpy(s->kernels, dsmoe_kernels_name(), sizeof s->kernels - 1);
    run_log_result(r, metrics_sync(r->metrics, &reason),
                   &reason); /* the log must not be older than the checkpoint */
    STATUS_TRY(checkpoint_write(r->folder, r->trainer, &options, s, path, error));
    memcpy(r->checkpoint, path, sizeof path);
    r->saved_step = s->step;
    r->is_measured = false;
    dsmoe_run_event event = run_event(r, DSMOE_RUN_CHECKPOINT);
    event.path = r->checkpoint;
    run_emit(r, &event);
    return DSMOE_OK;
}

static void prune(run *r)
{
    dsmoe_error reason;
    if (checkpoint_prune(r->folder, r->settings.keep, r->state.best_step, &reason) != DSMOE_OK)
        run_message(r, "older checkpoints could not be removed: %s", reason.message);
}

void run_consider_best(run *r)
{
    checkpoint_state *s = &r->state;
    r->is_measured = true;
    /* The comparison is false if best_loss is NaN. */
    if (isnan(r->held_out_loss) || s->best_loss <= r->held_out_loss) return;
    s->best_loss = r->held_out_loss;
    s->best_step = s->step;
}

static dsmoe_status evaluate(run *r, bool of_checkpoint, dsmoe_error *error)
{
    bool measured;
    STATUS_TRY(run_evaluate(r, is_end(r), &measured, error));
    if (!measured) return DSMOE_OK;
    run_count_evaluation(r);
    if (of_checkpoint) {
        STATUS_TRY(checkpoint_put_evaluation(r->checkpoint, r->held_out_loss, error));
        run_consider_best(r);
    }
    if (isnan(r->held_out_loss)) return DSMOE_OK;
    dsmoe_run_event event = run_event(r, DSMOE_RUN_EVAL);
    event.accuracy = r->held_out.accuracy;
    event.margin = r->held_out.margin;
    run_emit(r, &event);
    return DSMOE_OK;
}

/* Measuring the model does not change it, so a failure is reported and the run continues, unless ranks are
 * lost. */
static dsmoe_status excuse(run *r, dsmoe_status status, const char *what, const dsmoe_error *reason,
                           dsmoe_error *error)
{
    if (status == DSMOE_ERROR_PEER) return status_fail(error, status, "%s", reason->message);
    if (status != DSMOE_OK) run_message(r, "%s: %s", what, reason->message);
    return DSMOE_OK;
}

static dsmoe_status look(run *r, bool at_checkpoint, dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    dsmoe_error reason;
    if (evaluates(r) && (at_checkpoint || is_due(s->eval_every, r->state.step)))
        STATUS_TRY(excuse(r, evaluate(r, at_checkpoint, &reason),
                          "the held-out loss could not be measured", &reason, error));
    bool samples = is_due(s->sample_every, r->state.step) || (is_end(r) && s->sample_every > 0);
    if (!samples || r->stopped) return DSMOE_OK;
    return excuse(r, run_sample(r, &reason), "no sample could be written", &reason, error);
}

static dsmoe_status do_what_is_due(run *r, dsmoe_error *error)
{
    bool saves =
        is_end(r) || (is_due(r->settings.save_every, r->state.step) && r->n_skipped_in_row == 0);
    if (saves) STATUS_TRY(save(r, true, error));
    STATUS_TRY(look(r, saves, error));
    if (saves) prune(r);
    if (report_is_due(r) && !is_end(r)) refresh_report(r);
    return DSMOE_OK;
}

/* Writes the checkpoint of a run that ends before its last step. If patience ended the run, that is the
 * same step however often the run was stopped, so the checkpoint competes with the loss measured there. */
static dsmoe_status save_last(run *r, dsmoe_error *error)
{
    bool competes = run_is_out_of_patience(r) && r->state.evaluated_step == r->state.step;
    STATUS_TRY(save(r, competes, error));
    if (!competes) return DSMOE_OK;
    STATUS_TRY(checkpoint_put_evaluation(r->checkpoint, r->held_out_loss, error));
    run_consider_best(r);
    return DSMOE_OK;
}

/* ---- all steps ------------------------------------------------------------------------------- */

static dsmoe_status loop(run *r, dsmoe_error *error)
{
    if (is_pending(r)) {
        STATUS_TRY(look(r, r->state.is_due, error));
        if (!r->state.is_due) STATUS_TRY(save_last(r, error)); /* with the evaluation counted */
        prune(r);
    }
    while (!is_end(r) && !run_is_enough(r) && !run_is_out_of_patience(r) &&
           !run_is_out_of_time(r) && !run_asks_stop(r)) {
        STATUS_TRY(run_step(r, error));
        STATUS_TRY(do_what_is_due(r, error));
    }
    if (r->saved_step == r->state.step || r->state.step == 0) return DSMOE_OK;
    STATUS_TRY(save_last(r, error));
    prune(r);
    return DSMOE_OK;
}

/* Adds the last good checkpoint to a failure's message. */
static void name_checkpoint(const run *r, dsmoe_error *error)
{
    dsmoe_error reason = *error;
    status_fail(error, reason.status, "%s; last good checkpoint: %s", reason.message,
                *r->checkpoint ? r->checkpoint : "none yet");
}

/* Writes the last line if a process died after the last checkpoint and before that line. */
static dsmoe_status complete_log(run *r, dsmoe_error *error)
{
    if (!is_end(r) || metrics_is_finished(r->folder, r->state.step)) return DSMOE_OK;
    STATUS_TRY(metrics_open(r->folder, r->state.step, &r->metrics, error));
    run_log_end(r, true);
    refresh_report(r);
    return DSMOE_OK;
}

static dsmoe_status train(run *r, dsmoe_error *error)
{
    if (run_is_done(r)) {
        char why[DSMOE_PATH + 128];
        run_describe_end(r, why, sizeof why);
        run_message(r, "%s", why);
        STATUS_TRY(complete_log(r, error));
        return run_path(r->folder, "report.html", r->report, error);
    }
    dsmoe_status status = run_start(r, error);
    if (status != DSMOE_OK || !r->metrics) return status;
    status = loop(r, error);
    if (status == DSMOE_OK) run_log_end(r, is_end(r) && !is_pending(r));
    if (status != DSMOE_OK) name_checkpoint(r, error);
    /* After other failures, such as a full disk, writing the report would probably fail too. */
    if (status == DSMOE_OK || status == DSMOE_ERROR_NONFINITE) refresh_report(r);
    return status;
}

static void close_run(run *r)
{
    metrics_close(r->metrics);
    dsmoe_trainer_free(r->trainer);
    tune_close(&r->tuning);
    dsmoe_dataset_free(r->dataset);
    dsmoe_tokenizer_free(r->tokenizer);
    free(r->made);
    free(r->tokens);
    free(r->targets);
    free(r->positions);
    free(r->layer_losses);
    free(r->interval.layers);
    free(r->held_out.reference);
    if (r->lock >= 0) close(r->lock);
    free(r);
}

static void fill_result(const run *r, dsmoe_run_result *result)
{
    result->step = r->state.step;
    result->end = run_end(r);
    result->finished = result->end == DSMOE_RUN_FINISHED;
    result->loss = r->logged_loss;
    result->held_out_loss = r->held_out_loss;
    result->best_loss = r->state.best_loss;
    snprintf(result->checkpoint, sizeof result->checkpoint, "%s", r->checkpoint);
    snprintf(result->report, sizeof result->report, "%s", r->report);
}

dsmoe_status dsmoe_run(const dsmoe_run_settings *settings, const dsmoe_run_options *options,
                       dsmoe_run_result *result, dsmoe_error *error)
{
    if (options && !(options->time_limit >= 0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%g seconds cannot be a time limit",
                           options->time_limit);
    const dsmoe_peers *peers = options ? options->peers : NULL;
    /* Rank 0 tells the others everything later, except how they divide the work. */
    if (peers) STATUS_TRY(greet_ranks(peers, (uint64_t)options->parallel, error));
    if (peers_rank(peers) > 0) return run_follow(options, error);
    run *r = calloc(1, sizeof *r);
    if (!r) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a run");
    if (options) r->options = *options;
    if (peers_size(peers) > 1) r->peers = peers;
    r->started = clock_seconds();
    r->lock = r->saved_step = -1;
    r->logged_loss = r->state.loss = r->held_out_loss = r->state.best_loss = NAN;
    dsmoe_error reason = {0};
    dsmoe_status status = run_prepare(r, settings, &reason);
    if (status == DSMOE_OK && r->options.show_data > 0 && !r->stopped)
        status = run_show_data(r, &reason);
    else if (status == DSMOE_OK && !r->stopped)
        status = train(r, &reason);
    run_dismiss_ranks(r, status, &reason);
    if (status != DSMOE_OK || r->options.show_data > 0) run_abandon_folder(r);
    if (result) fill_result(r, result);
    close_run(r);
    if (status != DSMOE_OK && error) *error = reason;
    return status;
}

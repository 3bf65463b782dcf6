/* run_log.c - what a run reports: events to the caller, lines to metrics.jsonl. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pulse.h"
#include "base/threads.h"
#include "formats/json_write.h"
#include "train/correction.h"
#include "train/run.h"

/* ---- events ---------------------------------------------------------------------------------- */

static double seconds_left(const run *r)
{
    const run_clock *c = &r->clock;
    if (c->n_steps == 0) return NAN;
    double between = c->other_seconds / (double)c->n_steps;
    return (double)(r->settings.steps - r->state.step) * (c->step_seconds + between);
}

dsmoe_run_event run_event(const run *r, dsmoe_run_event_kind kind)
{
    return (dsmoe_run_event){
        .kind = kind,
        .config = &r->config,
        .data = &r->data,
        .memory = &r->memory,
        .first_step = r->first_step,
        .parameters = r->plan.total,
        .active_parameters = r->plan.active,
        .step = r->state.step,
        .n_steps = r->settings.steps,
        .loss = r->logged_loss,
        .aux_loss = r->interval.aux_loss,
        .device_loss = r->interval.device_loss,
        .lr = r->lr,
        .grad_norm = r->grad_norm,
        .imbalance = r->imbalance,
        .tokens_per_s = r->tokens_per_s,
        .seconds_left = seconds_left(r),
        .n_skipped = r->state.n_skipped,
        .held_out_loss = r->held_out_loss,
        .best_loss = r->state.best_loss,
        .accuracy = r->interval.accuracy,
        .margin = r->interval.margin,
    };
}

void run_emit(const run *r, const dsmoe_run_event *event)
{
    if (r->options.event) r->options.event(r->options.context, event);
}

void run_message(const run *r, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dsmoe_run_event event = run_event(r, DSMOE_RUN_MESSAGE);
    event.text = text;
    run_emit(r, &event);
}

bool run_asks_stop(run *r)
{
    if (r->options.stop && r->options.stop(r->options.context)) r->stopped = true;
    return r->stopped;
}

bool run_show_progress(void *context, double done, double total)
{
    const run_progress *p = context;
    pulse();
    dsmoe_run_event event = run_event(p->run, DSMOE_RUN_PROGRESS);
    event.what = p->what;
    event.done = done;
    event.total = total;
    run_emit(p->run, &event);
    return !run_asks_stop(p->run);
}

/* ---- the line "start" ------------------------------------------------------------------------ */

static void put_text(FILE *text, const char *key, const char *value)
{
    fprintf(text, ",\"%s\":", key);
    json_write_string(text, value);
}

static void put_integer(FILE *text, const char *key, int64_t value)
{
    fprintf(text, ",\"%s\":%" PRId64, key, value);
}

static void put_number(FILE *text, const char *key, double value)
{
    fprintf(text, ",\"%s\":", key);
    if (isfinite(value))
        json_write_number(text, value);
    else
        fputs("null", text);
}

/* The keys that describe the model. */
static void put_config(FILE *text, const dsmoe_config *c)
{
    fprintf(text, ",\"config\":{\"vocab_size\":%" PRId64, c->vocab_size);
    put_integer(text, "hidden_size", c->hidden_size);
    put_integer(text, "intermediate_size", c->intermediate_size);
    put_integer(text, "moe_intermediate_size", c->moe_intermediate_size);
    put_integer(text, "num_hidden_layers", c->num_hidden_layers);
    put_integer(text, "num_attention_heads", c->num_attention_heads);
    put_integer(text, "num_key_value_heads", c->num_key_value_heads);
    put_integer(text, "n_shared_experts", c->n_shared_experts);
    put_integer(text, "n_routed_experts", c->n_routed_experts);
    put_integer(text, "num_experts_per_tok", c->num_experts_per_tok);
    put_integer(text, "moe_layer_freq", c->moe_layer_freq);
    put_integer(text, "first_k_dense_replace", c->first_k_dense_replace);
    put_number(text, "aux_loss_alpha", c->aux_loss_alpha);
    fputc('}', text);
}

static void put_data(FILE *text, const run *r)
{
    const dsmoe_dataset_info *d = &r->data;
    const dsmoe_data_files *files = dsmoe_dataset_files(r->dataset);
    fprintf(text, ",\"data\":{\"n_tokens\":%" PRId64, d->n_tokens);
    put_integer(text, "n_documents", d->n_documents);
    put_integer(text, "n_bytes", d->n_bytes);
    put_integer(text, "n_bytes_left_out", files->n_bytes_left_out);
    put_integer(text, "n_bad_bytes", files->n_bad_bytes);
    put_integer(text, "n_train", d->n_train);
    put_integer(text, "n_held_out", d->n_held_out);
    put_integer(text, "sequence_length", d->sequence_length);
    if (d->is_packed) {
        put_integer(text, d->has_pairs ? "n_preferences" : "n_conversations", d->n_conversations);
        put_integer(text, "n_packed_tokens", d->n_packed_tokens);
        put_integer(text, "n_targets", d->n_targets);
        put_integer(text, "n_cut", d->n_cut);
        put_integer(text, "n_dropped", d->n_dropped);
        put_integer(text, "n_unanswered", d->n_unanswered);
    }
    fprintf(text, ",\"hash\":\"%016" PRIx64 "\"}", d->hash);
}

static void put_start(FILE *text, const void *context)
{
    const run *r = context;
    put_number(text, "time", (double)time(NULL));
    put_text(text, "version", dsmoe_version());
    put_integer(text, "step", r->state.step);
    put_integer(text, "parameters", r->plan.total);
    put_integer(text, "active_parameters", r->plan.active);
    put_integer(text, "threads", r->options.n_threads ? r->options.n_threads : threads_available());
    put_text(text, "kernels", dsmoe_kernels_name());
    if (r->peers) {
        put_integer(text, "ranks", r->peers->size);
        put_text(text, "parallel",
                 r->options.parallel == DSMOE_PARALLEL_EXPERTS ? "experts" : "data");
    }
    put_config(text, &r->config);
    fputs(",\"settings\":", text);
    settings_put(text, &r->settings);
    put_data(text, r);
}

static void put_change(FILE *text, const void *context)
{
    const run *r = context;
    put_integer(text, "step", r->state.step);
    fputs(",\"settings\":", text);
    settings_put_changes(text, &r->before, &r->settings);
}

dsmoe_status run_log_start(run *r, dsmoe_error *error)
{
    r->clock.last = clock_seconds();
    STATUS_TRY(metrics_put_line(r->metrics, "start", put_start, r, error));
    if (!r->options.resume || !settings_differ(&r->before, &r->settings)) return DSMOE_OK;
    return metrics_put_line(r->metrics, "change", put_change, r, error);
}

/* ---- the mean of an interval ----------------------------------------------------------------- */

/* Updates a mean of n - 1 numbers to the mean of n numbers. */
static void move_mean(double *mean, double number, int64_t n)
{
    *mean += (number - *mean) / (double)n;
}

static void add_to_interval(run *r)
{
    run_interval *v = &r->interval;
    if (isnan(r->state.loss)) return; /* the step was skipped */
    int64_t n = ++v->n;
    move_mean(&v->loss, r->losses.loss, n);
    move_mean(&v->aux_loss, r->losses.aux_loss, n);
    move_mean(&v->device_loss, r->losses.device_loss, n);
    move_mean(&v->accuracy, r->losses.accuracy, n);
    move_mean(&v->margin, r->losses.margin, n);
    for (int64_t i = 0; i < r->plan.n_moe_layers; i++) {
        const dsmoe_layer_losses *step = &r->layer_losses[i];
        v->layers[i].aux_loss += (step->aux_loss - v->layers[i].aux_loss) / (float)n;
        v->layers[i].device_loss += (step->device_loss - v->layers[i].device_loss) / (float)n;
    }
}

static void begin_interval(run *r)
{
    dsmoe_layer_losses *layers = r->interval.layers;
    memset(layers, 0, (size_t)r->plan.n_moe_layers * sizeof *layers);
    r->interval = (run_interval){.layers = layers};
}

/* ---- other lines ----------------------------------------------------------------------------- */

/* Heat maps need no more columns than a screen has. */
static int64_t load_every(const run *r)
{
    int64_t every = r->settings.steps / 200;
    return every < r->settings.log_every ? r->settings.log_every : every;
}

/* Few tokens are never balanced, so the previous value is kept for the first half of the interval. */
static void measure_imbalance(run *r)
{
    if (2 * ++r->n_load_steps >= load_every(r) || r->imbalance == 0)
        r->imbalance = dsmoe_trainer_imbalance(r->trainer);
}

/* Logs the biases of the gates, as moved by the load, if there are any. */
static void put_bias(run *r)
{
    if (!correction_is_used(r->trainer)) return;
    dsmoe_error error;
    dsmoe_status status = DSMOE_ERROR_MEMORY;
    metrics_range *ranges = calloc((size_t)r->plan.n_moe_layers, sizeof *ranges);
    if (ranges) {
        correction_ranges(r->trainer, ranges);
        status = metrics_put_bias(r->metrics, r->state.step, ranges, r->plan.n_moe_layers, &error);
    } else {
        status_fail(&error, status, "out of memory");
    }
    run_log_result(r, status, &error);
    free(ranges);
}

static void put_load(run *r)
{
    int64_t step = r->state.step;
    bool due = step % load_every(r) == 0 || step == r->settings.steps;
    if (r->plan.n_moe_layers == 0 || !due) return;
    dsmoe_error error;
    dsmoe_status status =
        metrics_put_load(r->metrics, step, dsmoe_trainer_expert_load(r->trainer),
                         r->plan.n_moe_layers, r->config.n_routed_experts, &error);
    run_log_result(r, status, &error);
    put_bias(r);
    dsmoe_trainer_reset_load(r->trainer);
    r->n_load_steps = 0;
}

static void keep_time(run *r, double seconds)
{
    static const double share_of_newest = 0.1;
    run_clock *c = &r->clock;
    double now = clock_seconds();
    c->other_seconds += fmax(0, now - c->last - seconds);
    c->last = now;
    c->n_steps++;
    /* At first the mean of all steps, as the very first one is slow; later of about the last ten. */
    c->step_seconds +=
        fmax(share_of_newest, 1.0 / (double)c->n_steps) * (seconds - c->step_seconds);
    const dsmoe_run_settings *s = &r->settings;
    double n_tokens = (double)(s->batch * s->accumulate) * (double)s->seq;
    r->tokens_per_s = c->step_seconds > 0 ? n_tokens / c->step_seconds : 0;
}

static void put_step(run *r, const dsmoe_run_event *event)
{
    dsmoe_trainer_times t = dsmoe_trainer_take_times(r->trainer);
    const metrics_step line = {
        .step = event->step,
        .tokens = r->state.sequences * r->settings.seq,
        .skipped = event->n_skipped,
        .loss = event->loss,
        .aux_loss = event->aux_loss,
        .device_loss = event->device_loss,
        .lr = event->lr,
        .grad_norm = event->grad_norm,
        .tokens_per_s = event->tokens_per_s,
        .imbalance = event->imbalance,
        .layers = r->interval.layers,
        .n_layers = r->plan.n_moe_layers,
        .has_pairs = r->data.has_pairs,
        .accuracy = event->accuracy,
        .margin = event->margin,
        .has_ranks = r->peers != NULL,
        .computing = t.attention + t.experts + t.router + t.head + t.optimizer + t.rest,
        .sending = t.sending,
        .waiting = t.waiting,
    };
    dsmoe_error error;
    run_log_result(r, metrics_put_step(r->metrics, &line, &error), &error);
}

void run_log_step(run *r, double seconds)
{
    int64_t step = r->state.step;
    keep_time(r, seconds);
    measure_imbalance(r);
    add_to_interval(r);
    r->logged_loss = r->interval.n > 0 ? r->interval.loss : (double)NAN;
    dsmoe_run_event event = run_event(r, DSMOE_RUN_STEP);
    run_emit(r, &event);
    if (step == 1 || step % r->settings.log_every == 0 || step == r->settings.steps) {
        put_step(r, &event);
        begin_interval(r);
    }
    put_load(r);
}

void run_log_skip(run *r, const char *reason)
{
    dsmoe_run_event event = run_event(r, DSMOE_RUN_SKIP);
    event.text = reason;
    run_emit(r, &event);
    dsmoe_error error;
    run_log_result(r, metrics_put_skip(r->metrics, r->state.step, reason, &error), &error);
}

void run_log_result(run *r, dsmoe_status status, const dsmoe_error *error)
{
    if (status == DSMOE_OK || r->metrics_failed) return;
    run_message(r, "training continues, but its log has gaps: %s", error->message);
    r->metrics_failed = true;
}

typedef struct end_line {
    const run *run;
    bool finished;
} end_line;

static void put_end(FILE *text, const void *context)
{
    const end_line *line = context;
    put_integer(text, "step", line->run->state.step);
    fprintf(text, ",\"finished\":%s", line->finished ? "true" : "false");
    put_number(text, "loss", line->run->logged_loss);
    put_number(text, "held_out_loss", line->run->held_out_loss);
}

void run_log_end(run *r, bool finished)
{
    end_line line = {r, finished};
    dsmoe_error error;
    run_log_result(r, metrics_put_line(r->metrics, "end", put_end, &line, &error), &error);
}

/* ablation.c - the paper's comparison of architectures, trained on given text. */
#include "study/ablation.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/config_write.h"
#include "study/ablation_folder.h"
#include "study/ablation_share.h"

static const double held_out = 0.01; /* share of the text */

enum { N_EVALS = 20, EVAL_SEQUENCES = 64, N_SAVES = 8 };

/* ---- telling the caller ---------------------------------------------------------------------- */

static void tell(const ablation *a, ablation_event event)
{
    if (a->options.event) a->options.event(a->options.context, &event);
}

static bool is_stopped(const ablation *a)
{
    return a->options.stop && a->options.stop(a->options.context);
}

static dsmoe_status stopped(dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

/* The context of tell_work: what the function that reports its progress is doing. */
typedef struct work {
    const ablation *a;
    const char *label, *unit;
} work;

static bool tell_work(void *context, double done, double total)
{
    const work *w = context;
    tell(w->a, (ablation_event){.kind = ABLATION_WORK,
                                .text = w->label,
                                .unit = w->unit,
                                .done = done,
                                .total = total});
    return !is_stopped(w->a);
}

/* ---- known losses ---------------------------------------------------------------------------- */

static bool is_missing(const ablation_entry *entry, int seed, int which)
{
    return loss_is_asked(entry->model, &entry->config, which) &&
           isnan(entry->runs[seed].losses[which]);
}

bool ablation_is_measured(const ablation_entry *entry, int seed)
{
    for (int which = 0; which < N_LOSSES; which++)
        if (is_missing(entry, seed, which)) return false;
    return true;
}

bool ablation_is_known(const ablation *a, int entry, int which)
{
    const ablation_entry *e = &a->entries[entry];
    if (!loss_is_asked(e->model, &e->config, which)) return false;
    for (int seed = 0; seed < a->n_seeds; seed++)
        if (!isnan(e->runs[seed].losses[which])) return true;
    return false;
}

bool ablation_is_shown(const ablation *a, int entry)
{
    return a->options.is_selected[entry] || ablation_is_known(a, entry, LOSS_PLAIN);
}

int ablation_compare(const ablation *a, study_comparison comparisons[N_CLAIMS])
{
    study_losses seeds[ABLATION_MAX_SEEDS];
    for (int seed = 0; seed < ABLATION_MAX_SEEDS; seed++)
        for (int i = 0; i < N_ARCHITECTURES; i++)
            memcpy(seeds[seed].of[i], a->entries[i].runs[seed].losses, sizeof seeds[seed].of[i]);
    return study_compare(seeds, ABLATION_MAX_SEEDS, comparisons);
}

/* ---- data and tokenizer ---------------------------------------------------------------------- */

/* Makes the path of an option absolute. */
static dsmoe_status take_path(const char *given, char out[DSMOE_PATH], dsmoe_error *error)
{
    char path[PATH_MAX];
    if (!realpath(given, path))
        return status_fail(error, DSMOE_ERROR_IO, "%s: no such file or folder", given);
    if (snprintf(out, DSMOE_PATH, "%s", path) < DSMOE_PATH) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: the path is too long", path);
}

/* Whether the folder has the tokens of the data. If so, the data itself may be gone. */
static bool has_tokens(const ablation *a)
{
    char path[ABLATION_PATH];
    return ablation_folder_has_begun(a) && access(ablation_path(a, path, "data.cache"), F_OK) == 0;
}

static dsmoe_status take_paths(ablation *a, dsmoe_error *error)
{
    const ablation_options *o = &a->options;
    if (strlen(o->out) + ABLATION_NAME > DSMOE_PATH)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: the path is too long", o->out);
    snprintf(a->out, sizeof a->out, "%s", o->out);
    if (o->tokenizer) STATUS_TRY(take_path(o->tokenizer, a->tokenizer_path, error));
    for (int i = 0; i < o->n_data; i++) {
        bool is_gone = access(o->data[i], F_OK) != 0 && has_tokens(a);
        if (!is_gone) {
            STATUS_TRY(take_path(o->data[i], a->data[i], error));
            continue;
        }
        snprintf(a->data[i], DSMOE_PATH, "%s", o->data[i]);
        if (!a->is_text_gone)
            tell(a, (ablation_event){.kind = ABLATION_TEXT_GONE, .text = o->data[i]});
        a->is_text_gone = true;
    }
    return DSMOE_OK;
}

static dsmoe_bad_bytes bad_bytes_of(const ablation *a)
{
    dsmoe_bad_bytes bad_bytes = DSMOE_BAD_BYTES_REPLACE;
    dsmoe_bad_bytes_find(a->options.bad_bytes, &bad_bytes);
    return bad_bytes;
}

static dsmoe_status train_tokenizer(const ablation *a, const char *folder, dsmoe_error *error)
{
    const char *data[DSMOE_MAX_DATA];
    for (int i = 0; i < a->options.n_data; i++) data[i] = a->data[i];
    dsmoe_tokenizer_train_options options = {.paths = data,
                                             .n_paths = a->options.n_data,
                                             .held_out = held_out,
                                             .bad_bytes = bad_bytes_of(a),
                                             .vocab_size = a->options.vocab_size,
                                             .n_threads = a->options.n_threads};
    work w = {a, "tokenizer", "bytes"};
    dsmoe_status status = dsmoe_tokenizer_train(&options, folder, tell_work, &w, error);
    tell(a, (ablation_event){.kind = ABLATION_WORK_END});
    return status;
}

/* All models use one tokenizer: the given one, or one in the folder, which is trained if it is missing. */
static dsmoe_status open_tokenizer(ablation *a, dsmoe_error *error)
{
    char path[ABLATION_PATH], trained[ABLATION_PATH];
    if (*a->tokenizer_path) return dsmoe_tokenizer_open(a->tokenizer_path, &a->tokenizer, error);
    ablation_path(a, trained, "tokenizer");
    if (access(ablation_path(a, path, "tokenizer/tokenizer.json"), F_OK) != 0)
        STATUS_TRY(train_tokenizer(a, trained, error));
    return dsmoe_tokenizer_open(trained, &a->tokenizer, error);
}

static dsmoe_status open_dataset(ablation *a, dsmoe_error *error)
{
    const char *data[DSMOE_MAX_DATA];
    for (int i = 0; i < a->options.n_data; i++) data[i] = a->data[i];
    dsmoe_dataset_options options = {.paths = data,
                                     .n_paths = a->is_text_gone ? 0 : a->options.n_data,
                                     .bad_bytes = bad_bytes_of(a),
                                     .tokenizer = a->tokenizer,
                                     .cache = a->out,
                                     .vocab_size = dsmoe_tokenizer_size(a->tokenizer),
                                     .sequence_length = a->options.seq,
                                     .held_out = held_out,
                                     .n_threads = a->options.n_threads,
                                     .expected_hash = ablation_folder_data_hash(a)};
    work w = {a, "tokenizing", "bytes"};
    dsmoe_error reason;
    dsmoe_status status = dsmoe_dataset_open(&options, tell_work, &w, &a->dataset, &reason);
    tell(a, (ablation_event){.kind = ABLATION_WORK_END});
    if (status == DSMOE_OK) return DSMOE_OK;
    a->is_other = status == DSMOE_ERROR_FORMAT && options.expected_hash && !a->is_text_gone;
    return status_fail(error, status, "%s%s", reason.message,
                       a->is_text_gone ? ": put the text back, so that it can be read again" : "");
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Checks that the models marked is_equal have equal expert parameters, total and active. */
static dsmoe_status check_equality(const ablation *a, dsmoe_error *error)
{
    const architecture_parameters *first = NULL;
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const architecture_parameters *p = &a->entries[i].parameters;
        if (!architectures[i].is_equal) continue;
        if (first && (p->experts != first->experts || p->active_experts != first->active_experts))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "%s has other expert parameters than it should",
                               architectures[i].name);
        if (!first) first = p;
    }
    return DSMOE_OK;
}

static dsmoe_status prepare_models(ablation *a, dsmoe_error *error)
{
    architecture_common common = {.vocab_size = dsmoe_tokenizer_size(a->tokenizer),
                                  .bos_token_id = dsmoe_tokenizer_bos(a->tokenizer),
                                  .eos_token_id = dsmoe_tokenizer_eos(a->tokenizer),
                                  .seq = a->options.seq};
    char path[ABLATION_PATH], name[64];
    dsmoe_error reason;
    ablation_path(a, path, "configs");
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        ablation_entry *e = &a->entries[i];
        e->config =
            architecture_config(e->model, a->options.scale, &common, &a->options.choices.of[i]);
        dsmoe_status status = architecture_count(&e->config, &e->parameters, &reason);
        if (status != DSMOE_OK)
            return status_fail(error, status, "%s: %s", e->model->name, reason.message);
        snprintf(name, sizeof name, "%s.json", e->model->name);
        STATUS_TRY(config_write_as(path, name, &e->config, DSMOE_F32, error));
    }
    return check_equality(a, error);
}

/* ---- opening --------------------------------------------------------------------------------- */

static dsmoe_status open_all(ablation *a, dsmoe_error *error)
{
    STATUS_TRY(take_paths(a, error));
    STATUS_TRY(ablation_folder_open(a, error));
    STATUS_TRY(open_tokenizer(a, error));
    STATUS_TRY(open_dataset(a, error));
    STATUS_TRY(prepare_models(a, error));
    return ablation_folder_read(a, error);
}

/* A stopped comparison can be resumed. A failure before any training removes what it made. */
static dsmoe_status settle(const ablation *a, dsmoe_status status)
{
    if (status != DSMOE_OK && status != DSMOE_ERROR_STOPPED) ablation_folder_abandon(a);
    return status;
}

dsmoe_status ablation_open(ablation *a, const ablation_options *options, dsmoe_error *error)
{
    *a = (ablation){.options = *options, .n_seeds = options->n_seeds, .lock = -1};
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        a->entries[i].model = &architectures[i];
        for (int seed = 0; seed < ABLATION_MAX_SEEDS; seed++)
            for (int which = 0; which < N_LOSSES; which++)
                a->entries[i].runs[seed].losses[which] = NAN;
    }
    dsmoe_status status = settle(a, open_all(a, error));
    ablation_leave_files(a);
    return status;
}

void ablation_close(ablation *a)
{
    dsmoe_dataset_free(a->dataset);
    dsmoe_tokenizer_free(a->tokenizer);
    ablation_share_end(a);
    free(a->made);
    a->dataset = NULL;
    a->tokenizer = NULL;
    a->made = NULL;
}

/* ---- training -------------------------------------------------------------------------------- */

static double run_gflop(const ablation *a, int entry)
{
    return a->entries[entry].parameters.flops * (double)(a->options.steps * a->options.batch) / 1e9;
}

/* Counts the runs and the GFLOP that this call has done and still has to do. */
static void count_work(ablation *a)
{
    a->n_runs = a->run;
    a->gflop_total = a->gflop_done;
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; seed < a->options.n_seeds; seed++) {
            const ablation_run *run = &a->entries[i].runs[seed];
            if (!a->options.is_selected[i] || run->is_finished || run->is_elsewhere) continue;
            a->n_runs++;
            a->gflop_total += run_gflop(a, i);
        }
}

typedef struct run_watch {
    ablation *a;
    int entry, seed;
    double gflop_before; /* done by this call before the run */
    int64_t first_step;
} run_watch;

static void watch_event(void *context, const dsmoe_run_event *event)
{
    run_watch *watch = context;
    ablation *a = watch->a;
    double per_step = run_gflop(a, watch->entry) / (double)a->options.steps;
    ablation_event told = {
        .entry = watch->entry, .seed = watch->seed, .run = a->run, .n_runs = a->n_runs};
    switch (event->kind) {
    case DSMOE_RUN_START:
        watch->first_step = event->first_step;
        a->gflop_total -= per_step * (double)event->first_step; /* was done by an earlier call */
        break;
    case DSMOE_RUN_STEP:
        a->gflop_done = watch->gflop_before + per_step * (double)(event->step - watch->first_step);
        told.kind = ABLATION_STEP;
        told.done = a->gflop_done;
        told.total = a->gflop_total;
        told.step = event->step;
        told.loss = event->loss;
        tell(a, told);
        break;
    case DSMOE_RUN_SKIP:
        told.kind = ABLATION_SKIP;
        told.text = event->text;
        tell(a, told);
        break;
    default: break;
    }
}

static bool watch_stop(void *context) { return is_stopped(((const run_watch *)context)->a); }

/* Copies a path into a run's settings. ablation_folder_open has checked that it is short enough. */
static void put_path(char out[DSMOE_PATH], const char *path)
{
    snprintf(out, DSMOE_PATH, "%.*s", DSMOE_PATH - 1, path);
}

static void run_settings(const ablation *a, int entry, int seed, dsmoe_run_settings *s)
{
    char path[ABLATION_PATH];
    const ablation_options *o = &a->options;
    const char *name = architectures[entry].name;
    *s = dsmoe_run_settings_default();
    memcpy(s->data, a->data, sizeof s->data);
    snprintf(s->bad_bytes, sizeof s->bad_bytes, "%s", o->bad_bytes);
    put_path(s->out, ablation_path(a, path, "runs/%s-seed%d", name, seed + 1));
    put_path(s->tokenizer,
             *a->tokenizer_path ? a->tokenizer_path : ablation_path(a, path, "tokenizer"));
    put_path(s->config, ablation_path(a, path, "configs/%s.json", name));
    s->steps = o->steps;
    s->batch = o->batch;
    s->seq = o->seq;
    s->lr = o->choices.of[entry].lr;
    s->seed = seed + 1;
    s->held_out = held_out;
    s->eval_every = o->steps > N_EVALS ? o->steps / N_EVALS : 1;
    s->eval_sequences = EVAL_SEQUENCES;
    s->sample_every = 0;
    s->save_every = o->steps > 50 * N_SAVES ? o->steps / N_SAVES : 0;
    s->keep = 1;
}

/* A finished run is never resumed, so of its large files only the weights are still needed. */
static void remove_spent(const ablation *a, int entry, int seed)
{
    static const char *const names[] = {"latest/training.safetensors", "best/training.safetensors",
                                        "data.cache"};
    char path[ABLATION_PATH];
    for (int i = 0; i < 3; i++)
        unlink(ablation_path(a, path, "runs/%s-seed%d/%s", architectures[entry].name, seed + 1,
                             names[i]));
}

static dsmoe_status train(ablation *a, int entry, int seed, dsmoe_error *error)
{
    static const char *const moved[] = {"data"};             /* its paths may have changed */
    dsmoe_run_settings *settings = malloc(sizeof *settings); /* too large for a stack */
    char saved[ABLATION_PATH], tokens[ABLATION_PATH];
    dsmoe_run_result result = {0};
    run_watch watch = {a, entry, seed, a->gflop_done, 0};
    dsmoe_run_options options = {.n_threads = a->options.n_threads,
                                 .event = watch_event,
                                 .stop = watch_stop,
                                 .setting_name = a->options.setting_name,
                                 .tokens = ablation_path(a, tokens, "data.cache"),
                                 .context = &watch};
    if (!settings) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a run");
    a->run++;
    run_settings(a, entry, seed, settings);
    ablation_path(a, saved, "runs/%s-seed%d/settings.json", architectures[entry].name, seed + 1);
    if (access(saved, F_OK) == 0) {
        options.resume = settings->out;
        options.given = moved;
        options.n_given = a->is_text_gone ? 0 : 1;
    }
    dsmoe_status status = dsmoe_run(settings, &options, &result, error);
    free(settings);
    tell(a, (ablation_event){.kind = ABLATION_RUN_END, .entry = entry, .seed = seed});
    return status == DSMOE_OK && !result.finished ? stopped(error) : status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static dsmoe_status measure_loss(ablation *a, int entry, int seed, int which,
                                 const dsmoe_model *model, dsmoe_error *error)
{
    char name[LOSS_NAME], label[96];
    snprintf(label, sizeof label, "%s, seed %d, %s", architectures[entry].name, seed + 1,
             loss_name(which, name));
    work w = {a, label, "sequences"};
    dsmoe_held_out_options options = {
        .n_threads = a->options.n_threads, .progress = tell_work, .context = &w};
    dsmoe_probe probe = loss_probe(which);
    dsmoe_model *probed = NULL;
    dsmoe_error reason;
    double loss = NAN;
    dsmoe_status status = DSMOE_OK;
    if (which != LOSS_PLAIN) status = dsmoe_model_probe(model, &probe, &probed, &reason);
    if (status == DSMOE_OK)
        status = dsmoe_held_out_loss(probed ? probed : model, a->dataset, &options, &loss, &reason);
    dsmoe_model_free(probed);
    tell(a, (ablation_event){.kind = ABLATION_WORK_END});
    if (is_stopped(a)) return stopped(error);
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", label, reason.message);
    if (!isfinite(loss))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the held-out loss is not a finite number", label);
    return ablation_folder_add(a, entry, seed, which, loss, error);
}

/* Measures the losses of a finished run that are not known yet. */
static dsmoe_status measure(ablation *a, int entry, int seed, dsmoe_error *error)
{
    char path[ABLATION_PATH];
    dsmoe_model *model;
    if (ablation_is_measured(&a->entries[entry], seed)) return DSMOE_OK;
    ablation_path(a, path, "runs/%s-seed%d/latest", architectures[entry].name, seed + 1);
    if (access(path, F_OK) != 0)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: the trained model is gone before all its losses were measured: "
                           "restore it, or remove the run's folder to train it again",
                           path);
    STATUS_TRY(dsmoe_model_open(path, &model, error));
    dsmoe_status status = DSMOE_OK;
    for (int which = 0; status == DSMOE_OK && which < N_LOSSES; which++)
        if (is_missing(&a->entries[entry], seed, which))
            status = measure_loss(a, entry, seed, which, model, error);
    dsmoe_model_free(model);
    return status;
}

/* ---- all runs -------------------------------------------------------------------------------- */

/* Trains a run if it is not finished, then measures its missing losses. */
static dsmoe_status train_and_measure(ablation *a, int entry, int seed, dsmoe_error *error)
{
    ablation_run *run = &a->entries[entry].runs[seed];
    double start = clock_seconds();
    if (!run->is_finished) STATUS_TRY(train(a, entry, seed, error));
    STATUS_TRY(ablation_folder_read_run(a, entry, seed, error));
    run->is_finished = true;
    STATUS_TRY(measure(a, entry, seed, error));
    remove_spent(a, entry, seed);
    tell(a, (ablation_event){.kind = ABLATION_MEASURED,
                             .entry = entry,
                             .seed = seed,
                             .loss = run->losses[LOSS_PLAIN],
                             .seconds = clock_seconds() - start});
    return DSMOE_OK;
}

static bool is_complete(const ablation_entry *entry, int seed)
{
    return entry->runs[seed].is_finished && ablation_is_measured(entry, seed);
}

/* Reads what this and other processes have written so far, and writes the results again. */
static dsmoe_status bring_up_to_date(ablation *a, dsmoe_error *error)
{
    STATUS_TRY(ablation_take_files(a, error));
    dsmoe_status status = ablation_folder_read(a, error);
    if (status == DSMOE_OK) status = ablation_write(a, error);
    ablation_leave_files(a);
    return status;
}

/* Trains and measures a run, unless another process has it. */
static dsmoe_status complete(ablation *a, int entry, int seed, dsmoe_error *error)
{
    const ablation_entry *e = &a->entries[entry];
    ablation_run *run = &a->entries[entry].runs[seed];
    if (is_complete(e, seed)) return DSMOE_OK;
    run->is_elsewhere = !ablation_take_run(a, entry, seed);
    if (run->is_elsewhere) return DSMOE_OK;
    dsmoe_status status = bring_up_to_date(a, error);
    count_work(a);
    if (status == DSMOE_OK && !is_complete(e, seed)) {
        status = train_and_measure(a, entry, seed, error);
        dsmoe_status written = bring_up_to_date(a, status == DSMOE_OK ? error : NULL);
        if (status == DSMOE_OK) status = written;
    }
    ablation_leave_run(a, entry, seed);
    return status;
}

/* Goes through all runs once, and counts those that other processes have. */
static dsmoe_status complete_all(ablation *a, int *n_elsewhere, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    *n_elsewhere = 0;
    for (int seed = 0; seed < a->options.n_seeds; seed++)
        for (int i = 0; status == DSMOE_OK && i < N_ARCHITECTURES; i++) {
            if (!a->options.is_selected[i]) continue;
            status = complete(a, i, seed, error);
            *n_elsewhere += a->entries[i].runs[seed].is_elsewhere;
        }
    return status;
}

/* Another process may end in the middle of a run. So while others have runs, this goes through all runs again,
 * until a pass trains none. */
dsmoe_status ablation_train(ablation *a, dsmoe_error *error)
{
    int n_elsewhere = 0, before;
    a->run = 0;
    a->gflop_done = 0;
    count_work(a);
    dsmoe_status status = bring_up_to_date(a, error);
    if (status == DSMOE_OK) tell(a, (ablation_event){.kind = ABLATION_START, .run = a->n_runs});
    do {
        before = a->run;
        if (status == DSMOE_OK) status = complete_all(a, &n_elsewhere, error);
    } while (status == DSMOE_OK && n_elsewhere > 0 && a->run > before);
    if (status == DSMOE_OK && n_elsewhere > 0)
        tell(a, (ablation_event){.kind = ABLATION_ELSEWHERE, .run = n_elsewhere});
    return settle(a, status);
}

/* run_start.c - the last preparations before the first step: the checkpoint to continue from, the trainer
 * with its weights, and the files that make the folder a run's. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "train/run.h"
#include "train/team.h"

/* ---- the checkpoint -------------------------------------------------------------------------- */

/* Renames newer, damaged checkpoints, so that the run continues from the newest one that is whole, and
 * reports it. */
static dsmoe_status set_damaged_aside(run *r, const char *reason, dsmoe_error *error)
{
    char path[CHECKPOINT_PATH];
    for (int64_t step = INT64_MAX;;) {
        STATUS_TRY(checkpoint_newest(r->folder, step, &step, path, error));
        if (step <= r->saved_step) break;
        STATUS_TRY(checkpoint_set_aside(r->folder, step, error));
    }
    run_message(r, "the newest checkpoint is damaged and was set aside (%s); continuing from %s",
                reason, r->checkpoint);
    return DSMOE_OK;
}

/* Restores what is not part of the checkpoint's own state. */
static void recall(run *r, int64_t step)
{
    r->saved_step = r->first_step = step;
    r->logged_loss = r->state.logged_loss;
    if (checkpoint_get_evaluation(r->checkpoint, &r->held_out_loss) && r->state.is_due) {
        run_count_evaluation(r);
        run_consider_best(r);
    }
    if (strcmp(r->state.kernels, dsmoe_kernels_name()))
        run_message(
            r,
            "this run has used the kernels '%s' so far and now uses '%s': it continues, but its "
            "numbers will differ in the last bits",
            r->state.kernels, dsmoe_kernels_name());
}

/* A run without a checkpoint starts over, and so does its log. A run that has had a checkpoint must not
 * start over: its folder may have been moved, or be on a disk that is not mounted. */
static dsmoe_status check_never_saved(const run *r, dsmoe_error *error)
{
    const char *sign = !run_has(r, "checkpoints")       ? "its folder checkpoints is missing"
                       : run_has(r, "latest")           ? "latest points to one"
                       : run_has(r, "best")             ? "best points to one"
                       : metrics_shows_saved(r->folder) ? "metrics.jsonl mentions one"
                                                        : NULL;
    if (!sign) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_IO,
        "%s: the checkpoints of this run are gone (%s): restore them, or begin a new run in "
        "another folder",
        r->folder, sign);
}

/* Finds the newest checkpoint that is whole. If newer ones are damaged, `damage` gets the message for the
 * newest. An older checkpoint is used only because of damage: missing permission or memory is an error. */
static dsmoe_status find_whole(run *r, int64_t *found, dsmoe_error *damage, dsmoe_error *error)
{
    for (int64_t step = INT64_MAX;;) {
        STATUS_TRY(checkpoint_newest(r->folder, step, &step, r->checkpoint, error));
        *found = step;
        if (step < 0) return DSMOE_OK;
        dsmoe_error reason;
        dsmoe_status status = checkpoint_check(r->checkpoint, &r->state, &reason);
        if (status == DSMOE_OK) return DSMOE_OK;
        if (status != DSMOE_ERROR_FORMAT) return status_fail(error, status, "%s", reason.message);
        if (!damage->status) *damage = reason;
    }
}

dsmoe_status run_find_checkpoint(run *r, dsmoe_error *error)
{
    dsmoe_error damage = {0};
    int64_t step;
    STATUS_TRY(find_whole(r, &step, &damage, error));
    if (step >= 0) {
        recall(r, step);
        if (damage.status) STATUS_TRY(set_damaged_aside(r, damage.message, error));
        checkpoint_mend_links(r->folder, r->saved_step, r->state.best_step);
        return DSMOE_OK;
    }
    *r->checkpoint = '\0';
    if (damage.status)
        return status_fail(error, damage.status, "every checkpoint is damaged: %s", damage.message);
    return check_never_saved(r, error);
}

/* ---- weights --------------------------------------------------------------------------------- */

static dsmoe_status load_init(run *r, dsmoe_error *error)
{
    dsmoe_model *model;
    STATUS_TRY(dsmoe_model_open(r->settings.init, &model, error));
    dsmoe_error reason;
    dsmoe_status status = dsmoe_trainer_load(r->trainer, model, &reason);
    dsmoe_model_free(model);
    return status ? status_fail(error, status, "%s: %s", r->settings.init, reason.message)
                  : DSMOE_OK;
}

/* The log's next line is a mean over steps that include some before this start. */
static void recall_interval(run *r)
{
    r->interval.n = r->state.interval_n;
    r->interval.loss = r->state.interval_loss;
    r->interval.aux_loss = r->state.interval_aux_loss;
    r->interval.device_loss = r->state.interval_device_loss;
    r->interval.accuracy = r->state.interval_accuracy;
    r->interval.margin = r->state.interval_margin;
    checkpoint_read_interval(r->checkpoint, r->interval.layers, r->plan.n_moe_layers);
}

static dsmoe_status fill_weights(run *r, dsmoe_error *error)
{
    checkpoint_state known; /* already known since run_find_checkpoint */
    if (r->saved_step >= 0) {
        STATUS_TRY(checkpoint_read(r->checkpoint, r->trainer, &known, error));
        recall_interval(r);
        return DSMOE_OK;
    }
    r->state = (checkpoint_state){.data_hash = r->data.hash,
                                  .loss = NAN,
                                  .best_loss = NAN,
                                  .best_step = -1,
                                  .lowest_loss = NAN,
                                  .evaluated_step = -1,
                                  .base_hash = r->base_hash};
    if (r->tuning.words.train == DSMOE_TRAIN_EXPERTS)
        return dsmoe_trainer_load(r->trainer, r->tuning.base, error);
    if (r->tuning.words.train == DSMOE_TRAIN_ALL && *r->settings.init) return load_init(r, error);
    return team_init(r->trainer, (uint64_t)r->settings.seed, error);
}

/* ---- memory and disk ------------------------------------------------------------------------- */

static dsmoe_trainer_options trainer_options(const run *r)
{
    const dsmoe_run_settings *s = &r->settings;
    return (dsmoe_trainer_options){
        .n_sequences = s->batch,
        .sequence_length = s->seq,
        .beta1 = s->beta1,
        .beta2 = s->beta2,
        .eps = s->eps,
        .weight_decay = s->weight_decay,
        .clip_norm = s->clip,
        .n_device_groups = s->device_groups,
        .device_loss_alpha = s->device_groups ? s->device_loss_alpha : 0,
        .bias_speed = s->bias_speed,
        .recompute = s->recompute,
        .tuning = r->tuning.base ? &r->tuning.words : NULL,
        .most_memory = (size_t)(s->memory * 1e9),
        .n_threads = r->options.n_threads,
        .peers = r->peers,
        .parallel = r->options.parallel,
    };
}

/* A trainer that cannot be made gives the reason. This adds the settings that it was made for. */
static void name_sizes(const run *r, dsmoe_error *error)
{
    static const char *const keys[] = {"batch", "seq", "recompute", "device_groups"};
    run_name_settings(r, keys, r->settings.device_groups ? 4 : 3, error);
}

static dsmoe_status create_trainer(run *r, dsmoe_error *error)
{
    dsmoe_status status = dsmoe_trainer_create(&r->config, &r->trainer_options, &r->trainer, error);
    if (status != DSMOE_OK) name_sizes(r, error);
    return status;
}

/* Fails if the disk cannot hold one checkpoint, because the run would end there. Warns if it cannot hold
 * all that are kept, the best one, and the one being written. */
static dsmoe_status check_disk(const run *r, dsmoe_error *error)
{
    struct statvfs disk;
    if (statvfs(r->folder, &disk) != 0) return DSMOE_OK; /* free space is unknown */
    dsmoe_dtype dtype = settings_dtype(&r->settings);
    double one = r->tuning.base
                     ? checkpoint_size((int64_t)(r->memory.weights / sizeof(float)), DSMOE_F32) +
                           (double)r->memory.weights
                     : checkpoint_size(r->plan.total, dtype);
    double all = one * (double)(r->settings.keep + 2);
    double left = (double)disk.f_bavail * (double)disk.f_frsize;
    if (one > left)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: a checkpoint takes %.0f MB, and the disk has %.0f MB left: make "
                           "room, or choose a folder on another disk",
                           r->folder, one / 1e6, left / 1e6);
    if (all > left && r->saved_step < 0)
        run_message(r, "checkpoints can take up to %.0f MB, and the disk has %.0f MB left",
                    all / 1e6, left / 1e6);
    return DSMOE_OK;
}

dsmoe_status run_plan(run *r, dsmoe_error *error)
{
    STATUS_TRY(dsmoe_model_plan_make(&r->config, r->settings.seq, &r->plan, error));
    r->trainer_options = trainer_options(r);
    r->memory = dsmoe_trainer_memory_size(&r->config, &r->trainer_options);
    if (r->memory.weights == 0) /* it cannot be made; creating it gives the reason */
        return create_trainer(r, error);
    dsmoe_status status = trainer_check_memory(&r->memory, error);
    if (status != DSMOE_OK) name_sizes(r, error);
    return status == DSMOE_OK ? check_disk(r, error) : status;
}

static dsmoe_status allocate(run *r, dsmoe_error *error)
{
    STATUS_TRY(run_share_memory(r, error));
    if (!r->trainer) STATUS_TRY(create_trainer(r, error));
    size_t n = (size_t)(peers_size(r->peers) * r->settings.batch * r->settings.seq);
    r->tokens = malloc(n * sizeof *r->tokens);
    r->targets = malloc(n * sizeof *r->targets);
    if (r->data.is_packed) r->positions = malloc(n * sizeof *r->positions);
    r->layer_losses = calloc((size_t)r->plan.n_moe_layers + 1, sizeof *r->layer_losses);
    r->interval.layers = calloc((size_t)r->plan.n_moe_layers + 1, sizeof *r->layer_losses);
    if (r->tokens && r->targets && (r->positions || !r->data.is_packed) && r->layer_losses &&
        r->interval.layers)
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a batch of tokens");
}

/* Emits the start event, with the settings that have changed since the run was last started. */
static void tell_start(const run *r)
{
    bool changed = r->options.resume && settings_differ(&r->before, &r->settings);
    char *changes =
        changed ? settings_describe_changes(&r->before, &r->settings, r->options.setting_name)
                : NULL;
    dsmoe_run_event event = run_event(r, DSMOE_RUN_START);
    event.text = changes;
    run_emit(r, &event);
    free(changes);
}

dsmoe_status run_start(run *r, dsmoe_error *error)
{
    tell_start(r);
    if (run_asks_stop(r)) return DSMOE_OK;
    STATUS_TRY(run_tell_ranks(r, error));
    STATUS_TRY(run_await_ranks(r, allocate(r, error), error));
    STATUS_TRY(fill_weights(r, error));
    STATUS_TRY(run_commit_folder(r, error));
    r->schedule = settings_schedule(&r->settings);
    STATUS_TRY(metrics_open(r->folder, r->state.step, &r->metrics, error));
    return run_log_start(r, error);
}

/* run.h - a training run in progress; for the files of the run:
 *
 *   run_folder.c   the folder
 *   run_prepare.c  the tokenizer, the configuration, the data
 *   run_change.c   changed settings of a run that has begun
 *   run_start.c    the checkpoint to continue from, the trainer
 *   run_tune.c     the base, if a part of a model is trained
 *   run_ranks.c    the other ranks: what they are told, and what they do
 *   run_limits.c   what ends it before its last step
 *   run.c          the loop: steps, checkpoints, and other work when it is due
 *   run_watch.c    held-out loss, samples, routing by kind of text
 *   run_show.c     shows the data before training
 *   run_log.c      events and metrics
 *
 * What a run computes is a function of its settings and the data alone. The data of a step and its
 * learning rate follow from the step's number, and measuring the model (held-out loss, samples) does not
 * change it. That is why a stopped run can be resumed bit for bit. */
#ifndef DSMOE_TRAIN_RUN_H
#define DSMOE_TRAIN_RUN_H

#include "report/metrics.h"
#include "train/checkpoint.h"
#include "train/settings.h"

/* How long steps take. */
typedef struct run_clock {
    double step_seconds;  /* of one step, smoothed over the last steps; 0 before the first */
    double other_seconds; /* between steps, in total */
    double last;          /* when the last step ended */
    int64_t n_steps;      /* steps that were timed */
} run_clock;

/* Means over the steps since the last line of the log; skipped steps do not count. */
typedef struct run_interval {
    int64_t n;
    double loss, aux_loss, device_loss;
    double accuracy, margin;    /* of preferences */
    dsmoe_layer_losses *layers; /* [n_moe_layers] */
} run_interval;

/* Held-out preferences. */
typedef struct run_preferences {
    double *reference; /* [n] log p(chosen) - log p(rejected) of the base, once it is known */
    int64_t n;
    double accuracy, margin; /* as in dsmoe_batch_losses */
} run_preferences;

/* Training a part of a model. */
typedef struct run_tuning {
    dsmoe_model *base; /* NULL: the whole model is trained */
    dsmoe_tuning words;
    unsigned char *chosen; /* [num_hidden_layers, n_routed_experts] experts that are trained */
} run_tuning;

typedef struct run {
    dsmoe_run_settings settings, before; /* `before`: those of a resumed run until now */
    dsmoe_run_options options;
    char folder[DSMOE_PATH];
    char *made;        /* the topmost folder made for it; NULL: all existed */
    bool is_preparing; /* the folder is new and does not hold a run yet */
    int lock;          /* the open folder: one process at a time trains in it; -1: not open */
    bool stopped;
    const dsmoe_peers *peers;   /* NULL: alone */
    bool has_ranks;             /* the other ranks wait for orders */
    bool told_ranks;            /* they know what this run is, or that it does not start */
    double started;             /* clock time */
    bool is_late;               /* the time limit has passed */
    dsmoe_tokenizer *tokenizer; /* NULL if the data are tokens already */
    dsmoe_config config;
    dsmoe_dataset *dataset;
    dsmoe_dataset_info data;
    dsmoe_model_plan plan;
    dsmoe_trainer_options trainer_options;
    dsmoe_trainer_memory memory;
    dsmoe_trainer *trainer;
    run_tuning tuning;
    uint64_t base_hash; /* of tuning's base; 0: there is none */
    metrics *metrics;
    bool metrics_failed; /* a line could not be written, and that was reported */
    dsmoe_schedule schedule;

    checkpoint_state state;           /* after the last step */
    int64_t first_step;               /* steps done before this start */
    int64_t saved_step;               /* of the last checkpoint; -1: there is none */
    char checkpoint[CHECKPOINT_PATH]; /* the last one; "": there is none */
    double held_out_loss;             /* of the current model; NaN: not measured */
    run_preferences held_out;         /* of the current model */
    bool is_measured;                 /* the last checkpoint was measured; its loss may be NaN */
    char report[CHECKPOINT_PATH];
    double reported, report_seconds; /* when the last report was made, and how long that took */
    int n_skipped_in_row;

    int32_t *tokens, *targets;        /* [n_ranks, batch, seq] */
    int32_t *positions;               /* the same, if the data are packed; otherwise NULL */
    dsmoe_layer_losses *layer_losses; /* [n_moe_layers] of the last step, the mean of its batches */
    dsmoe_batch_losses losses;        /* the same */
    run_interval interval;
    double logged_loss; /* the last logged mean */
    double lr, grad_norm, tokens_per_s, imbalance;
    int64_t n_load_steps; /* since the expert load was last logged */
    run_clock clock;
} run;

/* ---- the folder ------------------------------------------------------------------------------ */

/* Joins two parts of a path; fails if it is too long. */
dsmoe_status run_path(const char *folder, const char *name, char path[CHECKPOINT_PATH],
                      dsmoe_error *error);
/* Whether the folder has an entry of that name. */
bool run_has(const run *r, const char *name);
/* Whether the tokenizer that the settings name is the one in the folder. */
bool run_has_own_tokenizer(const run *r);
/* Opens the folder of the settings, which must hold nothing that a run would replace. */
dsmoe_status run_open_new_folder(run *r, dsmoe_error *error);
/* Makes a path of the settings absolute, so that the run can be resumed from anywhere. */
dsmoe_status run_make_absolute(const run *r, char path[DSMOE_PATH], const char *key,
                               dsmoe_error *error);
/* Whether a path is the run's folder. */
bool run_is_folder(const run *r, const char *path);
/* Opens the folder to resume, and reads the settings from its settings.json. */
dsmoe_status run_open_old_folder(run *r, dsmoe_error *error);
/* From now on the folder holds a run that can be resumed. */
dsmoe_status run_commit_folder(run *r, dsmoe_error *error);
/* Removes what was made, if the start failed before run_commit_folder. */
void run_abandon_folder(run *r);

/* ---- preparation: each function may return with `stopped` set -------------------------------- */

/* Everything small: settings, folder, tokenizer, configuration, data. */
dsmoe_status run_prepare(run *r, const dsmoe_run_settings *settings, dsmoe_error *error);
/* The settings that options.given names replace those of the resumed run, where that is allowed. */
dsmoe_status run_change_settings(run *r, const dsmoe_run_settings *given, dsmoe_error *error);
/* Whether options.given names a setting. */
bool run_is_given(const run *r, const char *key);
/* Finds the newest checkpoint that is whole; saved_step is -1 if there is none. */
dsmoe_status run_find_checkpoint(run *r, dsmoe_error *error);
/* Finds how much memory and disk space training needs, and whether they are available. */
dsmoe_status run_plan(run *r, dsmoe_error *error);
/* Makes the trainer with its weights, and the files of a run. */
dsmoe_status run_start(run *r, dsmoe_error *error);

/* ---- a part of a model ------------------------------------------------------------------------- */

/* Opens the model of `init`, if only a part is trained. */
dsmoe_status run_open_base(run *r, dsmoe_error *error);
/* Chooses the experts to train, if only experts are trained. run_scores_experts tells whether that needs
 * their scores, and so the data. */
bool run_scores_experts(const run *r);
dsmoe_status run_choose_experts(run *r, dsmoe_error *error);
/* The same for a rank that follows. `words` come from another rank, so their pointers except `targets` are
 * ignored. */
dsmoe_status tune_open(const char *base, const dsmoe_tuning *words, run_tuning *tuning,
                       dsmoe_error *error);
void tune_close(run_tuning *tuning);
/* Sends rank 0's choice of experts to all ranks. */
dsmoe_status tune_tell(const dsmoe_peers *peers, run_tuning *tuning, dsmoe_error *error);

/* ---- other ranks ------------------------------------------------------------------------------- */

/* On rank 0, when the run is known: tells the others, so that they can make their trainers. */
dsmoe_status run_tell_ranks(run *r, dsmoe_error *error);
/* On rank 0, after that: checks that machines have the memory that their ranks need together. */
dsmoe_status run_share_memory(run *r, dsmoe_error *error);
/* On rank 0, after making its trainer or failing to: checks that all ranks are ready. */
dsmoe_status run_await_ranks(run *r, dsmoe_status status, dsmoe_error *error);
/* On rank 0, at the end. */
void run_dismiss_ranks(run *r, dsmoe_status status, const dsmoe_error *reason);
/* All the work of another rank. */
dsmoe_status run_follow(const dsmoe_run_options *options, dsmoe_error *error);

/* Whether a resumed run has nothing left to do, and why, in words. */
bool run_is_done(const run *r);
void run_describe_end(const run *r, char *text, size_t size);

/* ---- ends before the last step --------------------------------------------------------------- */

bool run_is_enough(const run *r); /* the caller's stop_after is reached */
bool run_is_out_of_time(run *r);
bool run_is_out_of_patience(const run *r);
/* Whether eval_every, which is not 0, asks for an evaluation at this step that has not been made because
 * the run was interrupted. */
bool run_awaits_evaluation(const run *r);
/* Call this after measuring held_out_loss: patience counts it, once. */
void run_count_evaluation(run *r);
dsmoe_run_end run_end(const run *r);

/* Call this after measuring the last checkpoint: it may become the best. */
void run_consider_best(run *r);
/* Whether the caller wants to stop; sets `stopped`. */
bool run_asks_stop(run *r);

/* ---- measuring the model --------------------------------------------------------------------- */

/* Measures held_out_loss of the current model, NaN if the model overflows. `with_routing` also logs which
 * tokens chose which experts. `measured` is false if the caller asked to stop meanwhile. */
dsmoe_status run_evaluate(run *r, bool with_routing, bool *measured, dsmoe_error *error);
dsmoe_status run_sample(run *r, dsmoe_error *error);

/* Emits the first training sequences, one event each. */
dsmoe_status run_show_data(run *r, dsmoe_error *error);

/* ---- reporting ------------------------------------------------------------------------------- */

/* An event with all that is known about the run and its last step. */
dsmoe_run_event run_event(const run *r, dsmoe_run_event_kind kind);
void run_emit(const run *r, const dsmoe_run_event *event);
/* What the caller calls a setting: the key, or the option that sets it. */
const char *run_setting_name(const run *r, const char *key);
/* Adds the settings concerned and their values to a message: "(seq 256, held_out 0.05)". Settings that are
 * not set are left out, and a flag has no value. `error` must be filled. */
void run_name_settings(const run *r, const char *const *keys, int n_keys, dsmoe_error *error);
void run_message(const run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For long work: reports `what` is being done, and asks whether to continue. */
typedef struct run_progress {
    run *run;
    const char *what;
} run_progress;
bool run_show_progress(void *context, double done, double total); /* a dsmoe_progress_fn */

dsmoe_status run_log_start(run *r, dsmoe_error *error);
/* The run does not depend on the lines written below: a line that cannot be written is reported once, and
 * the run continues. */
void run_log_result(run *r, dsmoe_status status, const dsmoe_error *error);
/* A step has ended, and took `seconds`. */
void run_log_step(run *r, double seconds);
void run_log_skip(run *r, const char *reason);
void run_log_end(run *r, bool finished);

#endif

/* run.h - a training run while it runs, as its own files see it.
 *
 *   run_folder.c   the folder
 *   run_prepare.c  the tokenizer, the configuration, the data
 *   run_change.c   other settings for a run that has begun
 *   run_start.c    the checkpoint to go on from, the trainer
 *   run_tune.c     the base, where a part of a model is trained
 *   run_ranks.c    the other ranks: what they are told, and what they do
 *   run_limits.c   what ends it before its last step
 *   run.c          the loop: steps, when what is due, checkpoints
 *   run_watch.c    held-out loss, samples, routing by kind of text
 *   run_show.c     the data, to be looked at first
 *   run_log.c      events and metrics
 *
 * What a run computes is a function of its settings and the data alone: the data of a step and its
 * learning rate follow from its number, and looking at the model (held-out loss, samples) changes
 * nothing in it. That is why a stopped run can go on bit for bit. */
#ifndef DSMOE_TRAIN_RUN_H
#define DSMOE_TRAIN_RUN_H

#include "report/metrics.h"
#include "train/checkpoint.h"
#include "train/settings.h"

/* How long steps take. */
typedef struct run_clock {
    double step_seconds;  /* of one step, smoothed over the last ones; 0 before the first */
    double other_seconds; /* between steps, all together */
    double last;          /* when the last step ended */
    int64_t n_steps;      /* that were timed */
} run_clock;

/* Means over the steps since the last line of the log; skipped steps do not count. */
typedef struct run_interval {
    int64_t n;
    double loss, aux_loss, device_loss;
    double accuracy, margin;    /* of preferences */
    dsmoe_layer_losses *layers; /* [n_moe_layers] */
} run_interval;

/* What is held out of preferences. */
typedef struct run_preferences {
    double *reference; /* [n] log p(chosen) - log p(rejected) of the base, once it is known */
    int64_t n;
    double accuracy, margin; /* as in dsmoe_batch_losses */
} run_preferences;

/* A part of a model is trained. */
typedef struct run_tuning {
    dsmoe_model *base; /* NULL: all of it is */
    dsmoe_tuning words;
    unsigned char *chosen; /* [num_hidden_layers, n_routed_experts] experts that are trained */
} run_tuning;

typedef struct run {
    dsmoe_run_settings settings, before; /* `before`: as a resumed run had them until now */
    dsmoe_run_options options;
    char folder[DSMOE_PATH];
    char *made;        /* the topmost folder that was made for it; NULL: all were there */
    bool is_preparing; /* a new folder that does not hold a run yet */
    int lock;          /* the folder, opened: one process at a time trains there; -1: not open */
    bool stopped;
    const dsmoe_peers *peers;   /* NULL: alone */
    bool has_ranks;             /* the others wait for orders */
    bool told_ranks;            /* they know what this run is, or that there is none */
    double started;             /* when, on the clock */
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
    bool metrics_failed; /* a line could not be written, which has been said */
    dsmoe_schedule schedule;

    checkpoint_state state;           /* after the last step */
    int64_t first_step;               /* steps that were done before */
    int64_t saved_step;               /* of the last checkpoint; -1: there is none */
    char checkpoint[CHECKPOINT_PATH]; /* the last one; "": there is none */
    double held_out_loss;             /* of the model as it is; NaN: not measured */
    run_preferences held_out;         /* of it too */
    bool is_measured;                 /* the last checkpoint; its loss may be no finite number */
    char report[CHECKPOINT_PATH];
    double reported, report_seconds; /* when the last one was made, and how long that took */
    int n_skipped_in_row;

    int32_t *tokens, *targets;        /* [n_ranks, batch, seq] */
    int32_t *positions;               /* the same, where the data are packed; otherwise NULL */
    dsmoe_layer_losses *layer_losses; /* [n_moe_layers] of the last step, the mean of its batches */
    dsmoe_batch_losses losses;        /* the same */
    run_interval interval;
    double logged_loss; /* the mean that was logged last */
    double lr, grad_norm, tokens_per_s, imbalance;
    int64_t n_load_steps; /* since the expert load was last written down */
    run_clock clock;
} run;

/* ---- the folder ------------------------------------------------------------------------------ */

/* Joins two parts of a path; too long a one is an error. */
dsmoe_status run_path(const char *folder, const char *name, char path[CHECKPOINT_PATH],
                      dsmoe_error *error);
/* Whether the folder has something of that name. */
bool run_has(const run *r, const char *name);
/* Whether the tokenizer that the settings name is the folder's. */
bool run_has_own_tokenizer(const run *r);
/* The folder of the settings, which must hold nothing that a run would replace. */
dsmoe_status run_open_new_folder(run *r, dsmoe_error *error);
/* Makes a path of the settings absolute, so that the run can be resumed from anywhere. */
dsmoe_status run_make_absolute(const run *r, char path[DSMOE_PATH], const char *key,
                               dsmoe_error *error);
/* Whether a path is the run's folder. */
bool run_is_folder(const run *r, const char *path);
/* The folder to resume; the settings become those of its settings.json. */
dsmoe_status run_open_old_folder(run *r, dsmoe_error *error);
/* From now on it holds a run, which can be resumed. */
dsmoe_status run_commit_folder(run *r, dsmoe_error *error);
/* Removes what a start that failed before that has made. */
void run_abandon_folder(run *r);

/* ---- getting ready: each may leave with `stopped` set ---------------------------------------- */

/* Everything small: settings, folder, tokenizer, configuration, data. */
dsmoe_status run_prepare(run *r, const dsmoe_run_settings *settings, dsmoe_error *error);
/* The settings that options.given names replace those of the run that is resumed, as far as they may. */
dsmoe_status run_change_settings(run *r, const dsmoe_run_settings *given, dsmoe_error *error);
/* Whether options.given names a setting. */
bool run_is_given(const run *r, const char *key);
/* Finds the newest checkpoint that is whole; saved_step is -1 if there is none. */
dsmoe_status run_find_checkpoint(run *r, dsmoe_error *error);
/* What training will take, and whether memory and disk have it. */
dsmoe_status run_plan(run *r, dsmoe_error *error);
/* The trainer with its weights, and the files that say that this is a run. */
dsmoe_status run_start(run *r, dsmoe_error *error);

/* ---- a part of a model ------------------------------------------------------------------------- */

/* The model of `init`, unless all of it is trained. */
dsmoe_status run_open_base(run *r, dsmoe_error *error);
/* Which experts are trained, if some are. By their scores they can be chosen once the data is there. */
bool run_scores_experts(const run *r);
dsmoe_status run_choose_experts(run *r, dsmoe_error *error);
/* The same for a rank that follows: the words of another rank, whose pointers mean nothing here, but for targets. */
dsmoe_status tune_open(const char *base, const dsmoe_tuning *words, run_tuning *tuning,
                       dsmoe_error *error);
void tune_close(run_tuning *tuning);
/* Rank 0's choice of experts becomes that of all. */
dsmoe_status tune_tell(const dsmoe_peers *peers, run_tuning *tuning, dsmoe_error *error);

/* ---- other ranks ------------------------------------------------------------------------------- */

/* Rank 0, when the run is known: so that the others can make their trainers. */
dsmoe_status run_tell_ranks(run *r, dsmoe_error *error);
/* Rank 0, after that: whether machines have the memory that their ranks need together. */
dsmoe_status run_share_memory(run *r, dsmoe_error *error);
/* Rank 0, when its trainer is made or not: whether all are ready. */
dsmoe_status run_await_ranks(run *r, dsmoe_status status, dsmoe_error *error);
/* Rank 0, at the end. */
void run_dismiss_ranks(run *r, dsmoe_status status, const dsmoe_error *reason);
/* All that another rank does. */
dsmoe_status run_follow(const dsmoe_run_options *options, dsmoe_error *error);

/* Whether a run that is resumed has nothing left to do, and why in words. */
bool run_is_done(const run *r);
void run_describe_end(const run *r, char *text, size_t size);

/* ---- ends before the last step --------------------------------------------------------------- */

bool run_is_enough(const run *r); /* the steps that the caller wants */
bool run_is_out_of_time(run *r);
bool run_is_out_of_patience(const run *r);
/* Whether the evaluation that eval_every, which is not 0, asks for at this step has not been made, as
 * someone was interrupted there. */
bool run_awaits_evaluation(const run *r);
/* held_out_loss has been measured: patience counts it, once. */
void run_count_evaluation(run *r);
dsmoe_run_end run_end(const run *r);

/* The last checkpoint has been measured: it may be the best. */
void run_consider_best(run *r);
/* Whether the caller wants to stop; sets `stopped`. */
bool run_asks_stop(run *r);

/* ---- looking at the model -------------------------------------------------------------------- */

/* held_out_loss of the model as it is, NaN if the model overflows; `with_routing` also writes down who
 * chose whom. `measured` is false if the caller wants to stop meanwhile. */
dsmoe_status run_evaluate(run *r, bool with_routing, bool *measured, dsmoe_error *error);
dsmoe_status run_sample(run *r, dsmoe_error *error);

/* The first sequences to learn from, one event each. */
dsmoe_status run_show_data(run *r, dsmoe_error *error);

/* ---- telling --------------------------------------------------------------------------------- */

/* An event with all that is known of the run and its last step. */
dsmoe_run_event run_event(const run *r, dsmoe_run_event_kind kind);
void run_emit(const run *r, const dsmoe_run_event *event);
/* What the caller calls a setting: the key, or the option that sets it. */
const char *run_setting_name(const run *r, const char *key);
/* Adds to a message which settings it is about and what they are: "(seq 256, held_out 0.05)";
 * those that are not set say nothing, and a flag is its name. `error` is not NULL and filled. */
void run_name_settings(const run *r, const char *const *keys, int n_keys, dsmoe_error *error);
void run_message(const run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For long work: shows `what` is being done, and whether to go on. */
typedef struct run_progress {
    run *run;
    const char *what;
} run_progress;
bool run_show_progress(void *context, double done, double total); /* a dsmoe_progress_fn */

dsmoe_status run_log_start(run *r, dsmoe_error *error);
/* Nothing depends on what is written from here on: a line that cannot be written is reported once, and the
 * run goes on. */
void run_log_result(run *r, dsmoe_status status, const dsmoe_error *error);
/* A step is done, after so many seconds. */
void run_log_step(run *r, double seconds);
void run_log_skip(run *r, const char *reason);
void run_log_end(run *r, bool finished);

#endif

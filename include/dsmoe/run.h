/* dsmoe/run.h - a training run from settings to checkpoints and its page. */
#ifndef DSMOE_RUN_H
#define DSMOE_RUN_H

#include "data.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DSMOE_MAX_DATA = 16 };

/* All that decides what a run computes; it is saved with the run as settings.json, and can be read
 * from such a file. A run is a folder:
 *   settings.json, tokenizer.json, data.cache, metrics.jsonl, events.out.tfevents.*, report.html
 *   checkpoints/step-00000200/   a model folder, with training.safetensors beside the weights
 *   latest, best                 links to checkpoints */
typedef struct dsmoe_run_settings {
    char data[DSMOE_MAX_DATA][DSMOE_PATH];      /* "" after the last */
    char eval_data[DSMOE_MAX_DATA][DSMOE_PATH]; /* held out, instead of a share of the data */
    char out[DSMOE_PATH];
    char bad_bytes[16];         /* "replace", "keep", "skip" (dsmoe_bad_bytes) */
    char chat_form[32];         /* of conversations; "": the model's own */
    char train_on[16];          /* of conversations: "answers", "all" */
    char too_long[16];          /* conversations: "cut", "drop" */
    bool unpacked;              /* each conversation has a sequence of its own */
    double dpo_beta;            /* of preferences: see dsmoe_batch */
    char tokenizer[DSMOE_PATH]; /* "": that of `init`, otherwise one is trained on the data */
    char config[DSMOE_PATH];    /* a config.json; or */
    char preset[32];            /* a preset; or */
    char init[DSMOE_PATH];      /* a model to go on from; all "": the preset tiny */
    dsmoe_model_sizes model; /* over those of config or preset; the keys are those of config.json */
    int64_t vocab_size;      /* of a tokenizer that is trained here; 0: 8192, or what it can be */
    int64_t steps, batch, seq, accumulate;
    double lr;
    char schedule[16]; /* "step", "cosine", "constant" */
    int64_t warmup;    /* -1: a twentieth of the steps, at most 2000 */
    double weight_decay, clip, beta1, beta2, eps;
    double aux_loss_alpha; /* -1: the configuration's */
    int64_t device_groups;
    double device_loss_alpha;
    double bias_speed; /* of models whose topk_method is noaux_tc; 0: the bias stays as it is */
    double init_std;   /* -1: the configuration's initializer_range */
    bool recompute;
    char train[16]; /* what of `init` is trained: "all", "experts" or "lora" (dsmoe_train_what) */
    int64_t rank;   /* of low-rank additions, and the rest of dsmoe_tuning */
    double alpha;
    bool rslora;
    char targets[512];
    char expert_score[8];     /* "gate" or "token": how experts are chosen, */
    double expert_share;      /* and up to which sum; -1: the paper's; */
    char experts[DSMOE_PATH]; /* or a file that names them, as expert_cfg.json does */
    double memory;            /* GB that training a part may take; 0: what is available */
    int64_t seed;
    double held_out;                    /* not looked at if there are eval_data */
    int64_t eval_every, eval_sequences; /* 0: never; 0: all */
    int64_t patience; /* ends when so many evaluations in a row were not better; 0: never */
    int64_t sample_every, sample_tokens; /* 0: never */
    char sample_prompt[256];
    int64_t save_every, keep; /* 0: at the end only; last checkpoints kept, beside the best */
    char
        dtype[8]; /* of a checkpoint's weights: "f32", "f16", "bf16"; resuming is exact with each */
    int64_t log_every, report_every;
} dsmoe_run_settings;
DSMOE_API dsmoe_run_settings dsmoe_run_settings_default(void);
/* Keys of the file that are not there leave the setting as it is; an unknown one is an error. */
DSMOE_API dsmoe_status dsmoe_run_settings_read(const char *path, dsmoe_run_settings *settings,
                                               dsmoe_error *error);

typedef enum dsmoe_run_event_kind {
    DSMOE_RUN_PROGRESS,   /* `what` is being done: done of total */
    DSMOE_RUN_START,      /* everything is ready: the facts below are known; text: the settings that
                             changed, "lr 0.001 -> 0.0003, …", or NULL */
    DSMOE_RUN_STEP,       /* a step is done */
    DSMOE_RUN_EVAL,       /* held_out_loss */
    DSMOE_RUN_SAMPLE,     /* text, after the prompt */
    DSMOE_RUN_CHECKPOINT, /* path */
    DSMOE_RUN_SKIP,       /* a step was skipped: text says why */
    DSMOE_RUN_MESSAGE,    /* text for the user */
    DSMOE_RUN_SEQUENCE,   /* one of the first training sequences, in `sequence` */
} dsmoe_run_event_kind;

/* What show_data asks for. */
typedef struct dsmoe_run_sequence {
    const dsmoe_tokenizer *tokenizer; /* NULL: the data are tokens */
    const dsmoe_batch *batch;         /* this sequence alone */
    int64_t length;                   /* places in it */
    int64_t number, total;            /* of those that are shown, from 1 on */
} dsmoe_run_sequence;

typedef struct dsmoe_run_event {
    dsmoe_run_event_kind kind;
    const char *what, *text, *path;
    double done, total;
    /* of the run */
    const dsmoe_config *config;
    const dsmoe_dataset_info *data;
    const dsmoe_trainer_memory *memory;
    int64_t first_step; /* where it begins: 0, or after what a resumed run had done */
    int64_t parameters, active_parameters;
    /* of a step */
    int64_t step, n_steps;              /* step counts from 1 */
    double loss, aux_loss, device_loss; /* means since the last step that log_every names */
    double lr, grad_norm, imbalance;
    double tokens_per_s, seconds_left; /* of the last few steps */
    int64_t n_skipped;
    double held_out_loss, best_loss;
    /* Of preferences, as in dsmoe_batch_losses: means as `loss`, or of what is held out. */
    double accuracy, margin;
    const dsmoe_run_sequence *sequence;
} dsmoe_run_event;

typedef struct dsmoe_run_options {
    const char *resume; /* a run's folder to go on with, with the settings it has; or NULL */
    /* With resume: keys of the settings (as in settings.json) that the caller gives and that hold from
     * now on; the others are not looked at. What decides the model's shape and the order of the data
     * (out, tokenizer, config, preset, init, sizes, vocab_size, seq, init_std, seed, held_out, chat_form, train_on,
     * too_long, unpacked) cannot change: another value is refused. */
    const char *const *given;
    int n_given;
    /* What messages call a setting, such as the option of a command that sets it; NULL: its key. */
    const char *(*setting_name)(const char *key);
    /* Not 0: shows so many of the first training sequences, and ends; nothing is trained, and a new run's folder
     * is as it was before. */
    int64_t show_data;
    /* The data.cache of an earlier reading of the same data with the same tokenizer, or NULL. A run that has no
     * tokens yet takes these, if the file says they are its own, and otherwise reads the text. */
    const char *tokens;
    int64_t stop_after; /* end with a checkpoint after this many steps in all; 0: at the end */
    double
        time_limit; /* the same after the step in which so many seconds since the call pass; 0: none */
    int n_threads; /* 0: all processors */
    /* Ranks that train together, each of which calls dsmoe_run with the same settings; NULL: alone. Rank 0 alone
     * reads and writes files and reports events. What is computed, and so every checkpoint, does not depend on
     * the ranks: they may be others when a run is resumed. */
    const dsmoe_peers *peers;
    dsmoe_parallel parallel;
    /* Called after everything of note, from the calling thread; may be NULL. */
    void (*event)(void *context, const dsmoe_run_event *event);
    /* Asked after each step (and during long preparations): true, from any rank, ends the run with a
     * checkpoint. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_run_options;

typedef enum dsmoe_run_end {
    DSMOE_RUN_FINISHED = 0,        /* all steps are done */
    DSMOE_RUN_STOPPED = 1,         /* by stop_after, or as the caller wished */
    DSMOE_RUN_OUT_OF_TIME = 2,     /* time_limit */
    DSMOE_RUN_OUT_OF_PATIENCE = 3, /* the held-out loss did not improve any more */
} dsmoe_run_end;

typedef struct dsmoe_run_result {
    int64_t step;  /* steps done in all */
    bool finished; /* all of them */
    dsmoe_run_end end;
    double loss; /* the mean that was logged last */
    double held_out_loss, best_loss;
    char checkpoint[DSMOE_PATH + 64]; /* the last one written */
    char report[DSMOE_PATH + 64];
} dsmoe_run_result;
/* Trains as the settings say, or goes on with what a folder holds: a run that was stopped and resumed
 * gives the same bits as one that was not, for any numbers of threads. A step whose loss or gradient is not
 * finite is skipped; after ten in a row the run ends with an error that names the last checkpoint. */
DSMOE_API dsmoe_status dsmoe_run(const dsmoe_run_settings *settings,
                                 const dsmoe_run_options *options, dsmoe_run_result *result,
                                 dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* dsmoe/run.h - a training run from settings to checkpoints and its page. */
#ifndef DSMOE_RUN_H
#define DSMOE_RUN_H

#include "data.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DSMOE_MAX_DATA = 16 };

/* Everything that decides what a run computes. It is saved in the run as settings.json, and can be read from
 * such a file. A run is a folder:
 *   settings.json, tokenizer.json, data.cache, metrics.jsonl, events.out.tfevents.*, report.html
 *   checkpoints/step-00000200/   a model folder that also has training.safetensors
 *   latest, best                 links to checkpoints */
typedef struct dsmoe_run_settings {
    char data[DSMOE_MAX_DATA][DSMOE_PATH];      /* "" after the last */
    char eval_data[DSMOE_MAX_DATA][DSMOE_PATH]; /* held out, instead of a share of the data */
    char out[DSMOE_PATH];
    char bad_bytes[16];         /* "replace", "keep", "skip" (dsmoe_bad_bytes) */
    char chat_form[32];         /* chat form; "": the model's own */
    char train_on[16];          /* the part of conversations to learn: "answers", "all" */
    char too_long[16];          /* long conversations: "cut", "drop" */
    bool unpacked;              /* each conversation has a sequence of its own */
    double dpo_beta;            /* for preferences: see dsmoe_batch */
    char tokenizer[DSMOE_PATH]; /* "": that of `init`, or one trained on the data */
    char config[DSMOE_PATH];    /* a config.json; or */
    char preset[32];            /* a preset; or */
    char init[DSMOE_PATH];      /* a model to start from; all "": the preset tiny */
    dsmoe_model_sizes model;    /* replace those of config or preset; keys as in config.json */
    int64_t vocab_size;         /* of a tokenizer trained here; 0: 8192, or what the text allows */
    int64_t steps, batch, seq, accumulate;
    double lr;
    char schedule[16]; /* "step", "cosine", "constant" */
    int64_t warmup;    /* -1: a twentieth of the steps, at most 2000 */
    double weight_decay, clip, beta1, beta2, eps;
    double aux_loss_alpha; /* -1: the configuration's */
    int64_t device_groups;
    double device_loss_alpha;
    double bias_speed; /* for topk_method noaux_tc; 0: the bias stays as it is */
    double init_std;   /* -1: the configuration's initializer_range */
    bool recompute;
    char train[16]; /* the part of `init` that is trained: "all", "experts", "lora" */
    int64_t rank;   /* of low-rank additions; this and the next: see dsmoe_tuning */
    double alpha;
    bool rslora;
    char targets[512];
    char expert_score[8];     /* "gate" or "token": experts are chosen by this score, */
    double expert_share;      /* until their scores add up to this (-1: the paper's share), */
    char experts[DSMOE_PATH]; /* or are read from this expert_cfg.json */
    double memory;            /* GB that training part of a model may take; 0: what is available */
    int64_t seed;
    double held_out;                    /* not used if there are eval_data */
    int64_t eval_every, eval_sequences; /* eval_every 0: never; eval_sequences 0: all */
    int64_t patience; /* ends after this many evaluations in a row without a new best; 0: never */
    int64_t sample_every, sample_tokens; /* 0: never */
    char sample_prompt[256];
    int64_t save_every, keep; /* 0: at the end only; last ones kept, besides the best */
    /* Type of a checkpoint's weights: "f32", "f16", "bf16"; resuming is exact with each. */
    char dtype[8];
    int64_t log_every, report_every;
} dsmoe_run_settings;
DSMOE_API dsmoe_run_settings dsmoe_run_settings_default(void);
/* Settings whose keys are not in the file stay as they are; an unknown key is an error. */
DSMOE_API dsmoe_status dsmoe_run_settings_read(const char *path, dsmoe_run_settings *settings,
                                               dsmoe_error *error);

typedef enum dsmoe_run_event_kind {
    DSMOE_RUN_PROGRESS,   /* work `what`: `done` of `total` */
    DSMOE_RUN_START,      /* all is ready, and the facts below are known; text: the settings that
                             changed, "lr 0.001 -> 0.0003, …", or NULL */
    DSMOE_RUN_STEP,       /* a step is done */
    DSMOE_RUN_EVAL,       /* held_out_loss */
    DSMOE_RUN_SAMPLE,     /* text, after the prompt */
    DSMOE_RUN_CHECKPOINT, /* the checkpoint at `path` is written */
    DSMOE_RUN_SKIP,       /* a step was skipped: text says why */
    DSMOE_RUN_MESSAGE,    /* text for the user */
    DSMOE_RUN_SEQUENCE,   /* one of the first training sequences, in `sequence` */
} dsmoe_run_event_kind;

/* One of the training sequences that show_data asks for. */
typedef struct dsmoe_run_sequence {
    const dsmoe_tokenizer *tokenizer; /* NULL: the data are tokens */
    const dsmoe_batch *batch;         /* this sequence alone */
    int64_t length;                   /* number of places in it */
    int64_t number, total; /* number of this sequence, from 1, and of all that are shown */
} dsmoe_run_sequence;

typedef struct dsmoe_run_event {
    dsmoe_run_event_kind kind;
    const char *what, *text, *path;
    double done, total;
    /* About the run: */
    const dsmoe_config *config;
    const dsmoe_dataset_info *data;
    const dsmoe_trainer_memory *memory;
    int64_t first_step; /* where it begins: 0, or what a resumed run had done */
    int64_t parameters, active_parameters;
    /* About a step: */
    int64_t step, n_steps;              /* step counts from 1 */
    double loss, aux_loss, device_loss; /* means since the last logged step */
    double lr, grad_norm, imbalance;
    double tokens_per_s, seconds_left; /* of the last few steps */
    int64_t n_skipped;
    double held_out_loss, best_loss;
    /* For preferences, as in dsmoe_batch_losses: means like `loss`, or of held-out data. */
    double accuracy, margin;
    const dsmoe_run_sequence *sequence;
} dsmoe_run_event;

typedef struct dsmoe_run_options {
    const char *resume; /* a run's folder, to resume with its settings; or NULL */
    /* With resume: keys (as in settings.json) of the settings that replace those of the run; all others are
     * ignored. Settings that decide the model's shape or the order of the data (out, tokenizer, config,
     * preset, init, sizes, vocab_size, seq, init_std, seed, held_out, chat_form, train_on, too_long,
     * unpacked) cannot change: another value is an error. */
    const char *const *given;
    int n_given;
    /* How messages call a setting, such as the option of a command that sets it; NULL: by its key. */
    const char *(*setting_name)(const char *key);
    /* If not 0: reports this many of the first training sequences, and ends. Nothing is trained, and a new
     * run's folder is left as it was. */
    int64_t show_data;
    /* A data.cache made earlier from the same data with the same tokenizer, or NULL. A run that has no tokens
     * yet takes these if they match, and otherwise reads the text. */
    const char *tokens;
    int64_t stop_after; /* end with a checkpoint after this many steps in all; 0: after the last */
    /* The same after the step in which this many seconds have passed since the call; 0: no limit. */
    double time_limit;
    int n_threads; /* 0: all processors */
    /* Ranks that train together; each calls dsmoe_run with the same settings. NULL: alone. Only rank 0 reads
     * and writes files and reports events. The results, and so every checkpoint, do not depend on the ranks:
     * a run may be resumed with others. */
    const dsmoe_peers *peers;
    dsmoe_parallel parallel;
    /* Called with every event, from the calling thread; may be NULL. */
    void (*event)(void *context, const dsmoe_run_event *event);
    /* Called after each step (and during long preparations). Returning true, on any rank, ends the run with a
     * checkpoint. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_run_options;

typedef enum dsmoe_run_end {
    DSMOE_RUN_FINISHED = 0,        /* all steps are done */
    DSMOE_RUN_STOPPED = 1,         /* by stop_after, or by `stop` */
    DSMOE_RUN_OUT_OF_TIME = 2,     /* time_limit */
    DSMOE_RUN_OUT_OF_PATIENCE = 3, /* the held-out loss did not improve any more */
} dsmoe_run_end;

typedef struct dsmoe_run_result {
    int64_t step;  /* steps done in all */
    bool finished; /* all steps are done */
    dsmoe_run_end end;
    double loss; /* the last mean that was logged */
    double held_out_loss, best_loss;
    char checkpoint[DSMOE_PATH + 64]; /* the last one written */
    char report[DSMOE_PATH + 64];
} dsmoe_run_result;
/* Trains as the settings say, or resumes the run in a folder. A run that was stopped and resumed gives the
 * same bits as one that was not, for any numbers of threads. A step whose loss or gradient is not finite is
 * skipped; after ten in a row the run ends with an error that names the last checkpoint. */
DSMOE_API dsmoe_status dsmoe_run(const dsmoe_run_settings *settings,
                                 const dsmoe_run_options *options, dsmoe_run_result *result,
                                 dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* ablation.h - the paper's comparison of architectures: every model is trained with every seed, each run in a
 * folder of its own. Then the held-out loss of each run is measured, plain and under the paper's probes.
 *
 *   DIR/settings.txt     the settings that all runs share, one per line
 *   DIR/losses.tsv       every loss that was measured: model, seed, probe, loss
 *   DIR/ablation.json    the results, written again after every run, and their page, ablation.html
 *   DIR/data.cache, DIR/tokenizer/, DIR/configs/NAME.json, DIR/runs/NAME-seedN/
 *
 * An interrupted comparison resumes when it is opened again with the same options. Processes that have it
 * open at the same time share its runs (ablation_share.h). */
#ifndef DSMOE_STUDY_ABLATION_H
#define DSMOE_STUDY_ABLATION_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"
#include "study/choices.h"
#include "study/comparison.h"
#include "study/losses.h"

enum { ABLATION_MAX_SEEDS = STUDY_MAX_SEEDS, ABLATION_MAX_CURVE = 64 };

typedef enum ablation_event_kind {
    ABLATION_TEXT_GONE, /* the data file `text` is gone; its tokens in the folder are used */
    ABLATION_WAIT,      /* another process is preparing the folder */
    ABLATION_WORK,      /* progress of the task `text`: `done` of `total`, in `unit` */
    ABLATION_WORK_END,
    ABLATION_START,     /* everything is ready, and `run` runs are left to train */
    ABLATION_STEP,      /* a training step: `done` of the `total` GFLOP of this call */
    ABLATION_SKIP,      /* a training step was skipped; `text` says why */
    ABLATION_RUN_END,   /* the run is trained, or was stopped */
    ABLATION_MEASURED,  /* the run is measured: its plain `loss`, and the `seconds` it took */
    ABLATION_ELSEWHERE, /* only the `run` runs that other processes have are left */
} ablation_event_kind;

typedef struct ablation_event {
    ablation_event_kind kind;
    const char *text, *unit;
    double done, total;
    int entry, seed; /* of the run; seeds count from 0 */
    int run, n_runs; /* the run's number in this call, from 1, and how many runs the call has */
    int64_t step;
    double loss, seconds;
} ablation_event;

typedef struct ablation_options {
    const char *const *data; /* [n_data] text, JSON lines, token shards or folders of these */
    int n_data;
    const char *out;
    const char *tokenizer; /* NULL: a tokenizer of vocab_size tokens is trained */
    const char *bad_bytes; /* the name of a dsmoe_bad_bytes */
    const study_scale *scale;
    int64_t steps, batch, seq, vocab_size;
    study_choices choices;
    bool is_selected[N_ARCHITECTURES]; /* to train; others that have losses are shown too */
    int n_seeds, n_threads;
    /* Each may be NULL. setting_name returns what messages call a setting of a run; event receives what
     * happens; stop returns true to stop, which leaves a checkpoint and ends with DSMOE_ERROR_STOPPED. */
    const char *(*setting_name)(const char *key);
    void (*event)(void *context, const ablation_event *event);
    bool (*stop)(void *context);
    void *context;
} ablation_options;

/* The run of a model with a seed. Losses are over all held-out sequences; NAN: not known yet. */
typedef struct ablation_run {
    double losses[N_LOSSES];
    bool is_finished;
    bool is_elsewhere; /* another process has it */
    int n_curve;
    struct {
        int64_t step;
        double loss;
    } curve[ABLATION_MAX_CURVE];
} ablation_run;

typedef struct ablation_entry {
    const architecture *model;
    dsmoe_config config;
    architecture_parameters parameters;
    ablation_run runs[ABLATION_MAX_SEEDS]; /* seed 1 first */
} ablation_entry;

typedef struct ablation {
    ablation_options options;
    char out[DSMOE_PATH];
    char data[DSMOE_MAX_DATA][DSMOE_PATH]; /* absolute */
    bool is_text_gone;                     /* a data file is gone; only its tokens are left */
    char tokenizer_path[DSMOE_PATH];       /* of the given tokenizer; "": one is trained */
    char *made;     /* the topmost folder that was made for `out`; NULL: `out` was there */
    bool is_open;   /* the folder may hold this comparison: it was new, empty or has one */
    bool has_begun; /* something was trained there before, or another process is at work there */
    int lock;       /* descriptor of DIR/.lock (ablation_share.h); -1: not open */
    bool is_other;  /* after a failure: the folder belongs to another comparison */
    dsmoe_tokenizer *tokenizer;
    dsmoe_dataset *dataset;
    int n_seeds; /* seeds that are shown: those of the options, or more if the folder has them */
    ablation_entry entries[N_ARCHITECTURES];
    /* The work of this call. */
    int n_runs, run; /* how many runs this call trains in all, and the current one, from 1 */
    double gflop_done, gflop_total;
} ablation;

/* Opens a comparison: the folder, which must be new, empty or have the same settings, then the tokenizer, the
 * tokens, the models' configurations and the known results of their runs. A failure removes what it made,
 * unless something was trained in the folder. `a` may be too large for a stack. Close it in any case. */
dsmoe_status ablation_open(ablation *a, const ablation_options *options, dsmoe_error *error);
/* Trains and measures what is missing, all models of a seed before the next seed. */
dsmoe_status ablation_train(ablation *a, dsmoe_error *error);
void ablation_close(ablation *a);

/* Whether all losses that are measured of a run are known. */
bool ablation_is_measured(const ablation_entry *entry, int seed);
/* Whether tables show the entry: it is selected, or a plain loss of it is known. */
bool ablation_is_shown(const ablation *a, int entry);
/* Whether a loss is measured of the entry and known for at least one seed. */
bool ablation_is_known(const ablation *a, int entry, int which);
/* Compares the losses with the paper's claims. Returns the number of claims that there are losses for. */
int ablation_compare(const ablation *a, study_comparison comparisons[N_CLAIMS]);

#endif

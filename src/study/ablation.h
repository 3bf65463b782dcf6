/* ablation.h - the paper's comparison of architectures: models times seeds, each a training run in a folder of
 * its own; then the held-out loss of each, as it is and under the paper's probes.
 *
 *   DIR/settings.txt     what all runs have in common, a line each
 *   DIR/losses.tsv       every loss that was measured: model, seed, probe, loss
 *   DIR/ablation.json    the outcome, written again after every run, and its page, ablation.html
 *   DIR/data.cache, DIR/tokenizer/, DIR/configs/NAME.json, DIR/runs/NAME-seedN/
 *
 * A comparison that was interrupted goes on when it is opened again with the same options. Processes that have
 * it open at the same time share its runs (ablation_share.h). */
#ifndef DSMOE_STUDY_ABLATION_H
#define DSMOE_STUDY_ABLATION_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"
#include "study/choices.h"
#include "study/comparison.h"
#include "study/losses.h"

enum { ABLATION_MAX_SEEDS = 32, ABLATION_MAX_CURVE = 64 };

typedef enum ablation_event_kind {
    ABLATION_TEXT_GONE, /* text: a path of the data; its tokens in the folder are used */
    ABLATION_WAIT,      /* another process is preparing the folder */
    ABLATION_WORK,      /* `text` is being done: done of total, in `unit` */
    ABLATION_WORK_END,
    ABLATION_START,     /* everything is ready, and `run` runs are left to train */
    ABLATION_STEP,      /* of a run that is trained: done of total GFLOP of this call */
    ABLATION_SKIP,      /* a step of it was skipped: text says why */
    ABLATION_RUN_END,   /* it is trained, or was stopped */
    ABLATION_MEASURED,  /* all its losses are known: loss, and seconds that it took in all */
    ABLATION_ELSEWHERE, /* nothing else is left than `run` runs that other processes have */
} ablation_event_kind;

typedef struct ablation_event {
    ablation_event_kind kind;
    const char *text, *unit;
    double done, total;
    int entry, seed; /* of the run; seeds count from 0 */
    int run, n_runs; /* its number among those of this call, from 1, and how many these are */
    int64_t step;
    double loss, seconds;
} ablation_event;

typedef struct ablation_options {
    const char *const *data; /* [n_data] text, JSON lines, token shards or folders of these */
    int n_data;
    const char *out;
    const char *tokenizer; /* NULL: one of vocab_size tokens is trained */
    const char *bad_bytes; /* the name of a dsmoe_bad_bytes */
    const study_scale *scale;
    int64_t steps, batch, seq, vocab_size;
    study_choices choices;
    bool is_selected
        [N_ARCHITECTURES]; /* to be trained; what the folder has of others is shown too */
    int n_seeds, n_threads;
    /* All may be NULL. What a run calls its settings; what happens; whether to stop, which leaves a
     * checkpoint and ends with DSMOE_ERROR_STOPPED. */
    const char *(*setting_name)(const char *key);
    void (*event)(void *context, const ablation_event *event);
    bool (*stop)(void *context);
    void *context;
} ablation_options;

/* A model with a seed. Losses on all held-out sequences; NAN: not known yet. */
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
    bool is_text_gone;                     /* what is left of it is the tokens in the folder */
    char tokenizer_path[DSMOE_PATH];       /* of the one that was given; "": one is trained */
    char *made;     /* the topmost folder that was made for `out`; NULL: it was there */
    bool is_open;   /* the folder is this comparison's */
    bool has_begun; /* something was trained there before, or another process is about to */
    int lock;       /* ablation_share.h; -1: not open */
    bool is_other;  /* after a failure: the folder is that of another comparison */
    dsmoe_tokenizer *tokenizer;
    dsmoe_dataset *dataset;
    int n_seeds; /* of which something is to be shown */
    ablation_entry entries[N_ARCHITECTURES];
    /* The work of this call. */
    int n_runs, run; /* runs that it has, or will have, and the current one, from 1 */
    double gflop_done, gflop_total;
} ablation;

/* Opens a comparison with all it needs: the folder, which must be new, empty or of the same settings, the
 * tokenizer, the tokens, the models' configurations, and what is known of their runs. A failure leaves no
 * folder in which nothing was trained. `a` may be large for a stack; close it in any case. */
dsmoe_status ablation_open(ablation *a, const ablation_options *options, dsmoe_error *error);
/* Trains and measures what is missing, all models of a seed before the next seed. */
dsmoe_status ablation_train(ablation *a, dsmoe_error *error);
void ablation_close(ablation *a);

/* Whether nothing is left to measure of a run. */
bool ablation_is_measured(const ablation_entry *entry, int seed);
/* Whether the entry has a place in tables: it is selected, or there is something to show. */
bool ablation_is_shown(const ablation *a, int entry);
/* Whether a loss that is asked for is known for any seed. */
bool ablation_is_known(const ablation *a, int entry, int which);
/* What the losses say about the paper's claims; how many of these there is something to say about. */
int ablation_compare(const ablation *a, study_comparison comparisons[N_CLAIMS]);

#endif

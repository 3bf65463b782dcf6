/* ablate.h - the state of `dsmoe ablate`: models times seeds, each a training run in a folder of its own,
 * and what is known of them. */
#ifndef DSMOE_CLI_ABLATE_H
#define DSMOE_CLI_ABLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "cli/progress.h"
#include "dsmoe.h"
#include "formats/partial_file.h"
#include "study/choices.h"
#include "study/comparison.h"
#include "study/losses.h"

enum {
    ABLATE_MAX_SEEDS = 32,
    ABLATE_MAX_CURVE = 64,
    ABLATE_PATH = DSMOE_PATH + 64, /* of a file in the folder */
};

typedef struct ablate_options {
    const char *data[DSMOE_MAX_DATA];
    const char *out, *scale, *only, *bad_bytes, *tokenizer;
    int64_t n_seeds, n_threads;
    int64_t steps, batch, seq, vocab_size; /* 0: the scale's */
    option_words choices[N_CHOICES];       /* "VALUE" or "MODEL=VALUE" */
    bool all, json;
} ablate_options;

/* A model with a seed. Losses on all held-out sequences; NAN: not known yet. */
typedef struct ablate_run {
    double losses[N_LOSSES];
    bool is_finished;
    int n_curve;
    struct {
        int64_t step;
        double loss;
    } curve[ABLATE_MAX_CURVE];
} ablate_run;

typedef struct ablate_entry {
    const architecture *model;
    bool is_selected; /* to be trained by this call; what the folder has of others is shown too */
    dsmoe_config config;
    architecture_parameters parameters;
    ablate_run runs[ABLATE_MAX_SEEDS]; /* seed 1 first */
} ablate_entry;

typedef struct ablation {
    const ablate_options *options;
    const study_scale *scale;
    char out[DSMOE_PATH];
    char data[DSMOE_MAX_DATA][DSMOE_PATH]; /* absolute */
    int n_data;
    bool is_text_gone;               /* what is left of it is the tokens in the folder */
    char tokenizer_path[DSMOE_PATH]; /* of the one that was given; "": one is trained */
    dsmoe_bad_bytes bad_bytes;
    int n_made;     /* folders that were made for `out` */
    bool is_open;   /* the folder is this comparison's */
    bool has_begun; /* something was trained there before */
    int64_t steps, batch, seq, vocab_size;
    study_choices choices;
    dsmoe_tokenizer *tokenizer;
    dsmoe_dataset *dataset;
    int n_seeds; /* of which something is to be shown */
    ablate_entry entries[N_ARCHITECTURES];
    /* The work of this call. */
    int n_runs, run; /* runs that are left at its start, and the one at work, from 1 */
    double gflop_done, gflop_total;
    progress bar;
    char label[96];
} ablation;

/* All print their message and return the exit code, or CLI_OK. CLI_INTERRUPTED comes with no message. */

/* ---- the folder (ablate_folder.c) ------------------------------------------------------------ */

/* DIR/NAME; false after a message if that is too long. */
bool ablate_path(const ablation *a, char path[ABLATE_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A file there, whole or not at all. */
int ablate_write_file(const ablation *a, const char *name, partial_file_put_fn *put,
                      const void *context);
/* Makes the folder, or finds that what was trained there had the same settings. */
int ablate_folder_open(ablation *a);
/* Whether something has been trained there, or measured: from then on its settings bind. */
bool ablate_folder_has_begun(const ablation *a);
/* Removes it again, if nothing was trained there. */
void ablate_folder_abandon(const ablation *a);
/* The hash of the data that its losses are of; 0: it has none. */
uint64_t ablate_folder_data_hash(const ablation *a);
/* Reads what is known of all runs: losses.tsv, and the metrics of each. */
int ablate_folder_read(ablation *a);
/* Notes the loss of a probe, there and in the state. */
int ablate_folder_add(ablation *a, int entry, int seed, int which, double loss);
/* Reads the curve of one run and whether it is finished, once more. */
int ablate_folder_read_run(ablation *a, int entry, int seed);

/* ---- probes (ablate_probes.c) ---------------------------------------------------------------- */

/* Measures what is not known yet of a finished run. */
int ablate_measure(ablation *a, int entry, int seed);
/* Whether nothing is left to measure. */
bool ablate_is_measured(const ablate_entry *entry, int seed);

/* ---- what is shown (ablate_json.c, ablate_table.c) ------------------------------------------- */

/* Whether the entry has a place in tables: it is selected, or there is something to show. */
bool ablate_is_shown(const ablation *a, int entry);
/* What the losses say about the paper's claims; how many of these there is something to say about. */
int ablate_compare(const ablation *a, study_comparison comparisons[N_CLAIMS]);
/* DIR/ablation.json and DIR/ablation.html, made again. */
int ablate_write(const ablation *a);
void ablate_print_tables(const ablation *a);

#endif

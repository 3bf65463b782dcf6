/* demo_view.h - what `dsmoe demo` prints: results to stdout, progress to stderr. */
#ifndef DSMOE_CLI_DEMO_VIEW_H
#define DSMOE_CLI_DEMO_VIEW_H

#include "study/demo_corpus.h"
#include "study/demo_study.h"
#include "cli/progress.h"
#include "dsmoe.h"

/* Prints a title in bold between empty lines. */
void demo_print_title(const char *title);

/* Prints the kinds of text with an example of each. */
void demo_print_corpus(const char *folder, uint64_t seed, demo_size size);

/* Shows the progress of the run: a bar on a terminal, and a line for each evaluation. */
typedef struct demo_watch {
    progress training, work;  /* `work` is for everything but steps */
    char what[32], label[64]; /* of `work`; of `training`, with its loss */
    int64_t tokens_per_step;
    int64_t step, n_steps;
    double loss;
} demo_watch;
void demo_watch_event(demo_watch *watch, const dsmoe_run_event *event);
void demo_watch_end(demo_watch *watch);

/* Print how often the model was right, with examples; and which experts serve which kind. */
void demo_print_scores(const demo_study *study);
void demo_print_experts(const demo_study *study);

/* Prints where everything is and what to try; `program` is the name that this program was called by. */
void demo_print_next(const char *program, const char *folder, const char *report);

#endif

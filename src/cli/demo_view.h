/* demo_view.h - what `dsmoe demo` prints: results to stdout, what goes on meanwhile to stderr. */
#ifndef DSMOE_CLI_DEMO_VIEW_H
#define DSMOE_CLI_DEMO_VIEW_H

#include "study/demo_corpus.h"
#include "study/demo_study.h"
#include "cli/progress.h"
#include "dsmoe.h"

/* A line in bold between empty ones. */
void demo_print_title(const char *title);

/* The kinds of text with an example of each. */
void demo_print_corpus(const char *folder, uint64_t seed, demo_size size);

/* The run as it goes: a bar on a terminal, a line now and then elsewhere. */
typedef struct demo_watch {
    progress training, work;  /* the latter for what goes on beside the steps */
    char what[32], label[64]; /* the work; training and its loss */
    int64_t tokens_per_step;
    int64_t step, n_steps;
    double loss;
} demo_watch;
void demo_watch_event(demo_watch *watch, const dsmoe_run_event *event);
void demo_watch_end(demo_watch *watch);

/* How often it was right, with what it wrote; then who does what. */
void demo_print_scores(const demo_study *study);
void demo_print_experts(const demo_study *study);

/* Where everything is and what to try, with the name that this program was called by. */
void demo_print_next(const char *program, const char *folder, const char *report);

#endif

/* train_view.h - shows a training run on stderr: a description before it begins, a line every few steps and
 * for other events, and on a terminal, below those, a line that is redrawn with every step. */
#ifndef DSMOE_CLI_TRAIN_VIEW_H
#define DSMOE_CLI_TRAIN_VIEW_H

#include "cli/progress.h"
#include "dsmoe.h"

typedef struct train_view {
    const char *command;
    bool quiet;          /* only messages that the user must read */
    int64_t log_every;   /* steps between lines that stay */
    bool live;           /* stderr can redraw a line */
    bool drawn;          /* something is on it */
    double drawn_at;     /* clock */
    progress bar;        /* of work other than steps */
    const char *working; /* that work, or NULL */
    double done;         /* of that work */
} train_view;

train_view train_view_start(const char *command, int64_t log_every, bool quiet);
/* The `event` of dsmoe_run_options, with the view as its context. */
void train_view_event(void *view, const dsmoe_run_event *event);
/* Clears the line. */
void train_view_finish(train_view *view);

#endif

/* train_view.h - a training run for the eye: what it is before it begins, a line every so many steps and
 * for what else is worth keeping, and on a terminal, below those, one that is redrawn with every
 * step. All on stderr. */
#ifndef DSMOE_CLI_TRAIN_VIEW_H
#define DSMOE_CLI_TRAIN_VIEW_H

#include "cli/progress.h"
#include "dsmoe.h"

typedef struct train_view {
    const char *command;
    bool quiet;          /* only messages that someone must read */
    int64_t log_every;   /* steps between lines that stay */
    bool live;           /* stderr can redraw a line */
    bool drawn;          /* something is on it */
    double drawn_at;     /* clock */
    progress bar;        /* of the work that goes on beside steps */
    const char *working; /* what that is, or NULL */
    double done;         /* of it */
} train_view;

train_view train_view_start(const char *command, int64_t log_every, bool quiet);
/* The `event` of dsmoe_run_options, with the view as its context. */
void train_view_event(void *view, const dsmoe_run_event *event);
/* Clears the line. */
void train_view_finish(train_view *view);

#endif

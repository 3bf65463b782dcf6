/* progress_watch.h - watches the progress that long work reports, and stops the work. */
#ifndef DSMOE_TESTS_PROGRESS_WATCH_H
#define DSMOE_TESTS_PROGRESS_WATCH_H

#include <stdbool.h>

typedef struct progress_watch {
    int calls, stop_at; /* 0: never */
    double done, total;
} progress_watch;

/* A dsmoe_progress_fn whose context is the watch. Checks that `done` never decreases. */
bool watch_progress(void *context, double done, double total);

#endif

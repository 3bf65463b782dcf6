/* progress_watch.h - what long work tells of its progress, and where it is stopped. */
#ifndef DSMOE_TESTS_PROGRESS_WATCH_H
#define DSMOE_TESTS_PROGRESS_WATCH_H

#include <stdbool.h>

typedef struct progress_watch {
    int calls, stop_at; /* 0: never */
    double done, total;
} progress_watch;

/* A dsmoe_progress_fn whose context is the watch; what is done never becomes less. */
bool watch_progress(void *context, double done, double total);

#endif

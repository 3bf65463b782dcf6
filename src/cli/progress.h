/* progress.h - a bar with rate and time left on stderr, for work longer than a few seconds. Nothing
 * is drawn if stderr is not a terminal that can clear a line, or before half a second has passed. */
#ifndef DSMOE_CLI_PROGRESS_H
#define DSMOE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct progress {
    const char *label;  /* "writing" */
    const char *unit;   /* "tokens", or "bytes" (shown as kB, MB, GB) */
    double start, last; /* clock */
    bool shown, drawn;  /* whether stderr is a terminal; whether something is on the line */
} progress;

progress progress_start(const char *label, const char *unit);
/* For work that cannot say how far it is: shows a line if n_bytes is large enough for it to take seconds.
 * Call progress_finish here as well. */
progress progress_wait(const char *label, size_t n_bytes);
/* Redraws at most ten times a second. */
void progress_update(progress *p, double done, double total);
/* Clears the line. */
void progress_finish(progress *p);

#endif

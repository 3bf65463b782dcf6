/* watch.h - how long a rank waits for one that is silent.
 *
 * A rank that dies is missed at once, but one that is stopped, or waits for a disk that does not answer, only keeps
 * silent. So ranks that work or wait send each other signs of life, however long they take: who writes a checkpoint
 * does it from block to block. A rank that is waited for and gives none for too long is stuck. */
#ifndef DSMOE_PEERS_WATCH_H
#define DSMOE_PEERS_WATCH_H

#include "base/status.h"

typedef struct watch {
    double patience;          /* seconds; 0: it waits for ever, and no signs are needed */
    double looked, signed_at; /* by the clock */
    double
        awake; /* seconds in which this rank has looked on: none of those in which it was itself stopped */
    double *heard; /* [ranks], by `awake`: the last sign of each, or when this rank began to wait */
    int n_ranks;
} watch;

/* `heard` has room for n_ranks numbers. */
void watch_begin(watch *w, double patience, double *heard, int n_ranks, double clock);
/* Whether it is time to send the others a sign, which is then counted as sent. */
bool watch_owes_sign(watch *w, double clock);

/* A wait begins; a rank gave a sign; time goes by. */
void watch_begin_wait(watch *w, double clock);
void watch_hear(watch *w, int rank);
void watch_look(watch *w, double clock);
/* Whether a rank that is waited for has been silent for too long. */
bool watch_is_silent(const watch *w, int rank);

#endif

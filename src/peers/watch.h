/* watch.h - how long a rank waits for another rank that is silent.
 *
 * A rank that dies is noticed immediately. A rank that is stopped, or waits for a disk that does not
 * answer, is only silent. So ranks send each other signs of life while they work or wait, however long
 * that takes; a rank that writes a checkpoint sends them between the parts that it writes. If a rank that
 * others wait for gives no sign for too long, it is stuck. */
#ifndef DSMOE_PEERS_WATCH_H
#define DSMOE_PEERS_WATCH_H

#include "base/status.h"

typedef struct watch {
    double patience;          /* seconds; 0: it waits for ever and needs no signs */
    double looked, signed_at; /* clock times */
    double awake;  /* seconds during which this rank watched, without those when it was stopped */
    double *heard; /* [ranks], by `awake`: the last sign of each, or the start of a wait */
    int n_ranks;
} watch;

/* `heard` must have room for n_ranks numbers. */
void watch_begin(watch *w, double patience, double *heard, int n_ranks, double clock);
/* Whether it is time to send the others a sign, which is then counted as sent. */
bool watch_owes_sign(watch *w, double clock);

/* Call these when a wait begins, when a rank gives a sign, and regularly while waiting. */
void watch_begin_wait(watch *w, double clock);
void watch_hear(watch *w, int rank);
void watch_look(watch *w, double clock);
/* Whether a rank that this one waits for has been silent for too long. */
bool watch_is_silent(const watch *w, int rank);

#endif

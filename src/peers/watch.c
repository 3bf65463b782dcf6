/* watch.c - two clocks: the machine's for sending signs, and one for patience, which runs only while this
 * rank does. */
#include "peers/watch.h"

/* The interval between signs: ten of them may be lost or late before patience ends. */
static double interval_of(const watch *w)
{
    const double most = 10;
    return w->patience < 10 * most ? w->patience / 10 : most;
}

void watch_begin(watch *w, double patience, double *heard, int n_ranks, double clock)
{
    *w = (watch){.patience = patience,
                 .looked = clock,
                 .signed_at = clock,
                 .heard = heard,
                 .n_ranks = n_ranks};
    for (int r = 0; r < n_ranks; r++) heard[r] = 0;
}

bool watch_owes_sign(watch *w, double clock)
{
    if (w->patience <= 0 || clock - w->signed_at < interval_of(w)) return false;
    w->signed_at = clock;
    return true;
}

void watch_begin_wait(watch *w, double clock)
{
    w->looked = clock;
    for (int r = 0; r < w->n_ranks; r++) w->heard[r] = w->awake;
}

void watch_hear(watch *w, int rank) { w->heard[rank] = w->awake; }

/* This is called all the time, so gaps are short. A long gap means that this rank was stopped too, maybe
 * with all others. */
void watch_look(watch *w, double clock)
{
    double most = interval_of(w), gap = clock - w->looked;
    w->awake += gap < most ? gap : most;
    w->looked = clock;
}

bool watch_is_silent(const watch *w, int rank)
{
    return w->patience > 0 && w->awake - w->heard[rank] > w->patience;
}

/* arrival.c - sends the weights of one section after the other from their owners to all ranks. */
#include "train/arrival.h"

#include "train/trainer.h"

/* Sends this rank's part of the section to all others, and receives theirs. */
static dsmoe_status begin(dsmoe_trainer *t, dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    const section *s = &t->shares.sections[t->n_arrived];
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    float *weights = t->weights + s->begin;
    size_t own = (size_t)(s->cuts[p->rank + 1] - s->cuts[p->rank]);
    for (int r = 0; r < p->size; r++) {
        size_t n = (size_t)(s->cuts[r + 1] - s->cuts[r]);
        send[r] = (dsmoe_bytes){weights + s->cuts[p->rank], own * sizeof *weights};
        receive[r] = (dsmoe_bytes){weights + s->cuts[r], n * sizeof *weights};
        if (r == p->rank) send[r] = receive[r] = (dsmoe_bytes){0};
    }
    t->is_arriving = true;
    return peers_exchange_begin(p, send, receive, error);
}

static dsmoe_status end(dsmoe_trainer *t, dsmoe_error *error)
{
    STATUS_TRY(peers_exchange_end(t->options.peers, error));
    t->is_arriving = false;
    t->n_arrived++;
    return DSMOE_OK;
}

void arrival_expect(dsmoe_trainer *t)
{
    if (t->options.peers) t->n_arrived = 0;
}

dsmoe_status arrival_await(dsmoe_trainer *t, int64_t index, dsmoe_error *error)
{
    while (t->n_arrived <= index) {
        if (!t->is_arriving) STATUS_TRY(begin(t, error));
        STATUS_TRY(end(t, error));
    }
    bool more = t->n_arrived < t->shares.n_sections && !t->is_arriving;
    return more ? begin(t, error) : DSMOE_OK;
}

dsmoe_status arrival_finish(dsmoe_trainer *t, dsmoe_error *error)
{
    return arrival_await(t, t->shares.n_sections - 1, error);
}

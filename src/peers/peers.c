/* peers.c - calls of dsmoe_peers, the table of functions that joins several ranks. */
#include "peers/peers.h"

#include "base/pulse.h"

static _Thread_local pulse_call outside; /* the pulse to restore after an exchange */

dsmoe_status peers_agree(const dsmoe_peers *p, dsmoe_status mine, dsmoe_error *error)
{
    if (!p) return mine;
    dsmoe_error own = {0}, *said = error ? error : &own;
    int64_t first; /* counted from the end, so that the lowest rank has the largest number */
    dsmoe_error lost;
    dsmoe_status status =
        p->agree(p->context, mine == DSMOE_OK ? 0 : p->size - p->rank, &first, &lost);
    if (status != DSMOE_OK) return status_fail(error, status, "%s", lost.message);
    if (first == 0) return DSMOE_OK;
    int root = p->size - (int)first;
    if (p->rank == root) {
        dsmoe_error named;
        status_fail(&named, mine, "rank %d on %s: %s", p->rank, p->host, said->message);
        *said = named;
    }
    status = p->broadcast(p->context, root, said, sizeof *said, &lost);
    if (status != DSMOE_OK) return status_fail(error, status, "%s", lost.message);
    return said->status;
}

dsmoe_status peers_any(const dsmoe_peers *p, bool mine, bool *any, dsmoe_error *error)
{
    *any = mine;
    if (!p) return DSMOE_OK;
    int64_t largest = 0;
    STATUS_TRY(p->agree(p->context, mine, &largest, error));
    *any = largest != 0;
    return DSMOE_OK;
}

dsmoe_status peers_broadcast(const dsmoe_peers *p, int root, void *bytes, size_t size,
                             dsmoe_error *error)
{
    return p && size ? p->broadcast(p->context, root, bytes, size, error) : DSMOE_OK;
}

dsmoe_status peers_gather(const dsmoe_peers *p, const dsmoe_bytes *parts, dsmoe_error *error)
{
    return p ? p->gather(p->context, parts, error) : DSMOE_OK;
}

dsmoe_status peers_exchange_begin(const dsmoe_peers *p, const dsmoe_bytes *send,
                                  const dsmoe_bytes *receive, dsmoe_error *error)
{
    if (!p) return DSMOE_OK;
    STATUS_TRY(p->exchange_begin(p->context, send, receive, error));
    outside = pulse_set((pulse_call){p->poll, p->context});
    return DSMOE_OK;
}

dsmoe_status peers_exchange_end(const dsmoe_peers *p, dsmoe_error *error)
{
    if (!p) return DSMOE_OK;
    pulse_set(outside);
    return p->exchange_end(p->context, error);
}

dsmoe_status peers_exchange(const dsmoe_peers *p, const dsmoe_bytes *send,
                            const dsmoe_bytes *receive, dsmoe_error *error)
{
    STATUS_TRY(peers_exchange_begin(p, send, receive, error));
    return peers_exchange_end(p, error);
}

void peers_show_life(const dsmoe_peers *p)
{
    pulse_set(p ? (pulse_call){p->poll, p->context} : (pulse_call){0});
}

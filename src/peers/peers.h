/* peers.h - what the library makes of the table of functions that joins several ranks (dsmoe_peers): NULL is a
 * rank alone, for which all of this does nothing. */
#ifndef DSMOE_PEERS_PEERS_H
#define DSMOE_PEERS_PEERS_H

#include "base/status.h"

static inline int peers_rank(const dsmoe_peers *p) { return p ? p->rank : 0; }
static inline int peers_size(const dsmoe_peers *p) { return p ? p->size : 1; }

/* Whether all ranks are well. What the lowest rank that is not says, with its name and machine before it, is then
 * the error of all; `error` holds this rank's own before. */
dsmoe_status peers_agree(const dsmoe_peers *p, dsmoe_status mine, dsmoe_error *error);

/* Whether any rank says so. */
dsmoe_status peers_any(const dsmoe_peers *p, bool mine, bool *any, dsmoe_error *error);

dsmoe_status peers_broadcast(const dsmoe_peers *p, int root, void *bytes, size_t size,
                             dsmoe_error *error);
dsmoe_status peers_gather(const dsmoe_peers *p, const dsmoe_bytes *parts, dsmoe_error *error);
dsmoe_status peers_exchange(const dsmoe_peers *p, const dsmoe_bytes *send,
                            const dsmoe_bytes *receive, dsmoe_error *error);
/* Its two halves. In between this thread polls whenever it makes headway (base/pulse.h), so that bytes travel while
 * it computes. */
dsmoe_status peers_exchange_begin(const dsmoe_peers *p, const dsmoe_bytes *send,
                                  const dsmoe_bytes *receive, dsmoe_error *error);
dsmoe_status peers_exchange_end(const dsmoe_peers *p, dsmoe_error *error);

/* From now on this thread polls outside of exchanges as well, so that others know that it lives, however long they wait
 * for it. NULL: no more. */
void peers_show_life(const dsmoe_peers *p);

#endif

/* peers.h - the library's calls of dsmoe_peers, the table of functions that joins several ranks. NULL
 * means a single rank, for which all of these do nothing. */
#ifndef DSMOE_PEERS_PEERS_H
#define DSMOE_PEERS_PEERS_H

#include "base/status.h"

static inline int peers_rank(const dsmoe_peers *p) { return p ? p->rank : 0; }
static inline int peers_size(const dsmoe_peers *p) { return p ? p->size : 1; }

/* Fails on all ranks if any rank failed. The error of all is then that of the lowest failed rank, with its
 * name and machine in front. `error` holds this rank's own message before the call. */
dsmoe_status peers_agree(const dsmoe_peers *p, dsmoe_status mine, dsmoe_error *error);

/* Whether `mine` is true on any rank. */
dsmoe_status peers_any(const dsmoe_peers *p, bool mine, bool *any, dsmoe_error *error);

dsmoe_status peers_broadcast(const dsmoe_peers *p, int root, void *bytes, size_t size,
                             dsmoe_error *error);
dsmoe_status peers_gather(const dsmoe_peers *p, const dsmoe_bytes *parts, dsmoe_error *error);
dsmoe_status peers_exchange(const dsmoe_peers *p, const dsmoe_bytes *send,
                            const dsmoe_bytes *receive, dsmoe_error *error);
/* The two halves of peers_exchange. In between, this thread polls whenever it makes progress
 * (base/pulse.h), so that bytes are sent while it computes. */
dsmoe_status peers_exchange_begin(const dsmoe_peers *p, const dsmoe_bytes *send,
                                  const dsmoe_bytes *receive, dsmoe_error *error);
dsmoe_status peers_exchange_end(const dsmoe_peers *p, dsmoe_error *error);

/* From now on this thread polls outside exchanges as well. So other ranks know that it lives, however long
 * they wait for it. NULL: it stops polling. */
void peers_show_life(const dsmoe_peers *p);

#endif

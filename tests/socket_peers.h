/* socket_peers.h - ranks for tests: processes on this machine, joined by socket pairs. A test can make
 * them slow, divide their messages, and let them die or hang. */
#ifndef DSMOE_TESTS_SOCKET_PEERS_H
#define DSMOE_TESTS_SOCKET_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { SOCKET_PEERS_MAX = 16 }; /* ranks */

/* All zeros: ranks without faults. A call is one of agree, broadcast, gather, exchange_begin and
 * exchange_end. */
typedef struct socket_peers_options {
    int ranks_per_host;       /* ranks on each of machine0, machine1, …; 0: one */
    uint64_t seed;            /* of the random values below */
    size_t most_bytes;        /* random number of bytes a socket moves: up to this; 0: any */
    int most_delay_us;        /* each call is delayed at random up to this */
    int bad_rank;             /* the rank for the next three */
    int64_t dies_at_call;     /* it kills itself as its n-th call begins, from 1 */
    int64_t hangs_at_call;    /* it never returns from its n-th call */
    int64_t dies_after_bytes; /* it kills itself after sending this many bytes */
    double patience;          /* seconds without a sign of life before a call fails; 0: for ever */
    double time_limit;        /* seconds until remaining ranks are killed; 0: 120 */
} socket_peers_options;

/* How a rank ended. */
typedef struct socket_peers_end {
    int exit_code;   /* what its body returned; -1 if a signal ended it */
    int signal;      /* which one, or 0 */
    bool was_late;   /* it was killed because it took too long */
    int64_t n_calls; /* how many it began */
} socket_peers_end;

/* Runs `body` as each of n_ranks ranks, in a process of its own, and waits until all have ended; true if
 * every body returned 0. The program must not have started a thread before. A cmocka assertion that fails
 * in a body ends its process. `ends`, one for each rank, may be NULL, and so may `options`. */
bool socket_peers_run(int n_ranks, int (*body)(const dsmoe_peers *peers, void *context),
                      void *context, const socket_peers_options *options, socket_peers_end *ends);

#endif

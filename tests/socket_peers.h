/* socket_peers.h - ranks for tests: processes of this machine, joined by socket pairs, that may be as slow,
 * as chopped up and as mortal as a test wants them. */
#ifndef DSMOE_TESTS_SOCKET_PEERS_H
#define DSMOE_TESTS_SOCKET_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { SOCKET_PEERS_MAX = 16 }; /* ranks */

/* All zeros: ranks that behave. A call is one of agree, broadcast, gather, exchange_begin and exchange_end. */
typedef struct socket_peers_options {
    int ranks_per_host; /* so many in turn are on machine0, machine1, …; 0: each has its own */
    uint64_t seed;      /* of whatever is random below */
    size_t
        most_bytes; /* a socket moves at most so many at a time, at least one; 0: what the kernel likes */
    int most_delay_us;     /* before each call, at random up to this */
    int bad_rank;          /* which rank goes wrong if one of the next three says when */
    int64_t dies_at_call;  /* it kills itself as its n-th call begins, n from 1 */
    int64_t hangs_at_call; /* or never comes back from it */
    int64_t
        dies_after_bytes; /* or kills itself after sending so many bytes, in the middle of a message */
    double
        patience; /* seconds without a sign of life after which a call fails; 0: it waits for ever */
    double time_limit; /* seconds until ranks that are still there are killed; 0: 120 */
} socket_peers_options;

/* How a rank ended. */
typedef struct socket_peers_end {
    int exit_code;   /* what its body returned; -1 if a signal ended it */
    int signal;      /* which one, or 0 */
    bool was_late;   /* the signal is SIGKILL for having taken too long */
    int64_t n_calls; /* that it began, so that the next run can fail at each of them */
} socket_peers_end;

/* Runs body as each of n_ranks ranks, in a process of its own, and waits until all have ended; true if every body
 * returned 0. No thread may have been started before. An assertion of cmocka that fails inside a body ends that
 * process. `ends`, one for each rank, may be NULL, as may `options`. */
bool socket_peers_run(int n_ranks, int (*body)(const dsmoe_peers *peers, void *context),
                      void *context, const socket_peers_options *options, socket_peers_end *ends);

#endif

/* recorded_peers.h - a table of ranks that records every call, for tests of what ranks send. */
#ifndef DSMOE_TESTS_RECORDED_PEERS_H
#define DSMOE_TESTS_RECORDED_PEERS_H

#include "dsmoe.h"

enum { RECORDED_RANKS = 8, RECORDED_CALLS = 4000 };

typedef enum recorded_kind {
    RECORDED_BEGIN,
    RECORDED_END,
    RECORDED_GATHER,
    RECORDED_OTHER /* agree, broadcast */
} recorded_kind;

typedef struct recorded_call {
    recorded_kind kind;
    size_t send[RECORDED_RANKS],
        receive[RECORDED_RANKS]; /* of a gather: the sizes of all parts, and 0 */
    int n_polls;                 /* of an end: polls since it began */
    void *bytes;                 /* of a gather: all parts, one after another */
} recorded_call;

typedef struct recorded_peers {
    dsmoe_peers table; /* to be used instead of `inner` */
    const dsmoe_peers *inner;
    recorded_call *calls;
    int n_calls, n_polls;
} recorded_peers;

/* `out` must not be moved. Too many ranks or calls fail the test. */
void recorded_peers_open(const dsmoe_peers *inner, recorded_peers *out);
void recorded_peers_close(recorded_peers *r);

#endif

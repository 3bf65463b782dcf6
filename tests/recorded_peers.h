/* recorded_peers.h - a table of ranks that keeps account of every call: for tests of what ranks send. */
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
        receive[RECORDED_RANKS]; /* of a gathering: the parts, and nothing */
    int n_polls;                 /* of an end: since it began */
    void *bytes;                 /* of a gathering: all parts, one after the other */
} recorded_call;

typedef struct recorded_peers {
    dsmoe_peers table; /* to be used instead of the other */
    const dsmoe_peers *inner;
    recorded_call *calls;
    int n_calls, n_polls;
} recorded_peers;

/* `out` must stay where it is. Fails the test if there are too many ranks or calls. */
void recorded_peers_open(const dsmoe_peers *inner, recorded_peers *out);
void recorded_peers_close(recorded_peers *r);

#endif

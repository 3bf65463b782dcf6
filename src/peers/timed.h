/* timed.h - wraps a dsmoe_peers table and counts the seconds spent in it. */
#ifndef DSMOE_PEERS_TIMED_H
#define DSMOE_PEERS_TIMED_H

#include "base/status.h"

typedef struct timed_peers {
    dsmoe_peers table; /* its context is this struct, which must not move */
    const dsmoe_peers *of;
    double seconds;
} timed_peers;

void timed_peers_open(timed_peers *timed, const dsmoe_peers *of);
/* The seconds counted since the last call of this function. */
double timed_peers_take(timed_peers *timed);

#endif

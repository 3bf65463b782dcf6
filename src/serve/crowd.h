/* crowd.h - clients that watch how all texts together use the experts (GET /routing). Up to ten times a
 * second each watcher gets an event with the sums since the last one. Without watchers nothing is summed. */
#ifndef DSMOE_SERVE_CROWD_H
#define DSMOE_SERVE_CROWD_H

#include "serve/http.h"
#include "serve/routing_log.h"

enum { CROWD_MAX_WATCHERS = 16 };

typedef struct crowd {
    routing_crowd sums;
    http_exchange *watchers[CROWD_MAX_WATCHERS];
    int n_watchers;
    int64_t n_running, n_waiting; /* requests, for the event */
    double told_at;
} crowd;

bool crowd_create(crowd *c, const routing_shape *shape);
void crowd_free(crowd *c);
/* Ends the streams of all watchers. */
void crowd_dismiss(crowd *c);
/* Takes over the exchange. Refuses it if there are CROWD_MAX_WATCHERS already. */
void crowd_add_watcher(crowd *c, http_exchange *exchange);
void crowd_refuse_watcher(http_exchange *exchange);
void crowd_end_pass(crowd *c, int64_t n_rows);
/* Sends an event if one is due, and drops watchers that have disconnected. */
void crowd_tell(crowd *c, double now);

#endif

/* crowd.h - those who watch what all texts together do with the experts (GET /routing): a few times a second each
 * of them is sent one event with the sums since the last. Nothing is summed up while there are no watchers. */
#ifndef DSMOE_SERVE_CROWD_H
#define DSMOE_SERVE_CROWD_H

#include "serve/http.h"
#include "serve/routing_log.h"

enum { CROWD_MAX_WATCHERS = 16 };

typedef struct crowd {
    routing_crowd sums;
    http_exchange *watchers[CROWD_MAX_WATCHERS];
    int n_watchers;
    int64_t n_running, n_waiting; /* requests, as they are told of */
    double told_at;
} crowd;

bool crowd_create(crowd *c, const routing_shape *shape);
void crowd_free(crowd *c);
/* Ends the streams of all who watch. */
void crowd_dismiss(crowd *c);
/* Takes the exchange over; one too many is refused. */
void crowd_add_watcher(crowd *c, http_exchange *exchange);
void crowd_refuse_watcher(http_exchange *exchange);
void crowd_end_pass(crowd *c, int64_t n_rows);
/* Sends an event if it is time for one, and lets those go who have left. */
void crowd_tell(crowd *c, double now);

#endif

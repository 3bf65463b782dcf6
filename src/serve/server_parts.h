/* server_parts.h - shared by the server's files: its state and its table of paths. */
#ifndef DSMOE_SERVE_SERVER_PARTS_H
#define DSMOE_SERVE_SERVER_PARTS_H

#include <stdatomic.h>
#include <stdio.h>

#include "serve/guard.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/request.h"
#include "serve/scheduler.h"
#include "serve/server.h"

struct server {
    server_options o;
    guard guard;
    http_server *http;
    char *name; /* of the model */
    metrics metrics;
    FILE *log;
    _Atomic bool ready, closed; /* there is a model; the server is draining */
    /* valid once `ready` is set */
    server_model served;
    scheduler *scheduler;
    request_limits limits;
    int64_t created; /* seconds since 1970 */
};

/* Answers a request, or hands it to the scheduler, which answers it. */
typedef void endpoint_fn(server *s, http_exchange *exchange);

typedef struct endpoint {
    const char *method, *path;
    endpoint_fn *answer;
    bool needs_model;
} endpoint;
extern const endpoint endpoints[];
extern const int n_endpoints;

endpoint_fn endpoint_health, endpoint_models, endpoint_props, endpoint_slots, endpoint_metrics,
    endpoint_tokenize, endpoint_detokenize, endpoint_apply_template, endpoint_chat,
    endpoint_completions, endpoint_native, endpoint_embeddings, endpoint_routing, endpoint_lora,
    endpoint_set_lora;

#endif

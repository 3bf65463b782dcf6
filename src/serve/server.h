/* server.h - `dsmoe serve`: a model for many people. http ▸ api ▸ scheduler ▸ engine, and the page. */
#ifndef DSMOE_SERVE_SERVER_H
#define DSMOE_SERVE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

typedef struct server server;

typedef struct server_options {
    const char *host, *socket_path;
    int port;
    const char *cert, *key; /* PEM files of TLS; NULL: none */
    const char *const *api_keys;
    size_t n_api_keys;
    const char *api_key_file;
    const char *const *allowed_hosts, *const *cors_origins;
    size_t n_allowed_hosts, n_cors_origins;
    const char *model_path,
        *alias;                  /* alias: the name that clients see; NULL: the path's last part */
    dsmoe_engine_options engine; /* n_sequences: texts at a time; n_ctx: of each */
    int64_t max_waiting;
    double max_seconds;  /* of a request */
    double hang_seconds; /* of a layer, before /health says no */
    size_t max_unsent;   /* bytes that a client may leave untaken before its text waits */
    int max_connections, n_http_threads;
    const char *log_path; /* a line of JSON for each request; "-": standard output; NULL: none */
} server_options;
server_options server_options_default(void);

/* Listens: requests are answered with 503 until there is a model. */
dsmoe_status server_start(const server_options *options, server **s, dsmoe_error *error);
/* What is served. All of it must outlive the server. */
typedef struct server_model {
    const dsmoe_model *model;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    const dsmoe_chat_form *chat_form; /* of conversations; NULL without a tokenizer */
    bool converses;                   /* the page talks to the model instead of continuing texts */
    dsmoe_sampler_options sampling;   /* where a request says nothing */
    dsmoe_engine_options adapters;    /* only its adapters and their scales count */
} server_model;
dsmoe_status server_give_model(server *s, const server_model *model, dsmoe_error *error);
const char *server_url(const server *s);
bool server_is_open(const server *s); /* beyond this machine, to anyone */
/* What the engine has; only after server_give_model. */
dsmoe_engine_info server_engine(server *s);

/* Takes no new requests, waits until the clients of running ones have their answers; true if all ended in time. */
bool server_drain(server *s, double seconds);
/* Whatever still runs is ended. May be NULL. */
void server_free(server *s);

#endif

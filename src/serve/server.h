/* server.h - `dsmoe serve`: a model for many clients. http ▸ api ▸ scheduler ▸ engine, and the page. */
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
    dsmoe_engine_options engine; /* n_sequences: texts at a time; n_ctx: tokens of each */
    int64_t max_waiting;
    double max_seconds;  /* of a request */
    double hang_seconds; /* that a layer may take before /health fails */
    size_t max_unsent;   /* bytes waiting for a client at which its text pauses */
    int max_connections, n_http_threads;
    const char *log_path; /* a line of JSON for each request; "-": standard output; NULL: none */
} server_options;
server_options server_options_default(void);

/* Starts to listen. Requests that need a model are answered with 503 until there is one. */
dsmoe_status server_start(const server_options *options, server **s, dsmoe_error *error);
/* The model to serve. Everything in it must outlive the server. */
typedef struct server_model {
    const dsmoe_model *model;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    const dsmoe_chat_form *chat_form; /* how conversations are framed; NULL without a tokenizer */
    bool converses;                   /* the page holds conversations instead of continuing texts */
    dsmoe_sampler_options sampling;   /* defaults for omitted fields of a request */
    dsmoe_engine_options adapters;    /* only the adapters and their scales are used */
} server_model;
dsmoe_status server_give_model(server *s, const server_model *model, dsmoe_error *error);
const char *server_url(const server *s);
bool server_is_open(const server *s); /* to other machines, without a key */
/* The engine's sizes. Call it only after server_give_model. */
dsmoe_engine_info server_engine(server *s);

/* Stops taking requests and waits until all answers have been sent. True if that happened in time. */
bool server_drain(server *s, double seconds);
/* Ends requests that are still running. `s` may be NULL. */
void server_free(server *s);

#endif

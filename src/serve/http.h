/* http.h - HTTP as the rest of the server sees it: a request comes in whole, bytes of an answer are sent, the answer is
 * ended, and one may ask whether the client is still there. The library behind it (GNU libmicrohttpd) is named in
 * http.c only. */
#ifndef DSMOE_SERVE_HTTP_H
#define DSMOE_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

typedef struct http_server http_server;
typedef struct http_exchange http_exchange; /* a request and its answer */

typedef struct http_options {
    const char *host;        /* an address, or a name that has one */
    int port;                /* 0: one that is free */
    const char *socket_path; /* a Unix socket instead of host and port; NULL: none */
    const char *cert, *key;  /* PEM files, for TLS; NULL: none */
    int n_threads;
    int max_connections; /* more wait in the kernel's queue */
    size_t max_body;     /* bytes of a request; more is answered with 413 */
    size_t max_bodies;   /* of all requests in hand together; more is answered with 503 */
    /* That a connection may pass without a byte while a request is read, or while bytes of an answer
     * wait for the client. All of a request must be in after twice that time, and a second more for
     * each kilobyte of its body. 0: no limit. */
    int idle_seconds;
    /* Called when the head of a request is in, before its body: true if the request was answered
     * already (refused) and its body is of no interest. Then, when all of it is in, `handle`. Both on
     * one of the server's threads. */
    bool (*admit)(void *context, http_exchange *exchange);
    void (*handle)(void *context, http_exchange *exchange);
    /* An answer that this file gives by itself (400, 413, 503) as the body of an error, to be freed.
     * May be NULL. What the library refuses on its own (a head that is too long: 431) has a text of its own. */
    char *(*error_body)(int status, const char *message);
    /* Called once for every request whose head was in, admitted or not, when its answer was sent or its
     * client left; may be NULL. The request can still be asked for. */
    void (*finished)(void *context, http_exchange *exchange);
    void *context;
} http_options;

/* Listens from here on. */
dsmoe_status http_server_start(const http_options *options, http_server **server,
                               dsmoe_error *error);
/* "http://127.0.0.1:8080" with the port that it really has, or "unix:/path". */
const char *http_server_url(const http_server *server);
/* No new connections from here on; those that exist go on, until their next answer is sent. */
void http_server_quiesce(http_server *server);
/* Every connection is closed, every thread of it ends. Exchanges that were not ended stay valid until they
 * are: their clients are gone. May be NULL. */
void http_server_stop(http_server *server);
int http_server_connections(http_server *server);
/* Requests that are in, and whose answers their clients do not have in full yet. */
int http_server_answers(http_server *server);

/* ---- the request: valid until http_end ----------------------------------------------------------- */

const char *http_method(const http_exchange *exchange);
const char *http_path(const http_exchange *exchange); /* as it was sent, without "?…" */
const char *http_header(const http_exchange *exchange, const char *name);    /* NULL: not there */
const char *http_parameter(const http_exchange *exchange, const char *name); /* after "?"; NULL */
const char *http_body(const http_exchange *exchange, size_t *length);        /* ends with a NUL */
const char *http_id(const http_exchange *exchange);   /* of this request alone: x-request-id */
const char *http_peer(const http_exchange *exchange); /* the client's address */

/* ---- the answer: from any thread, one thread at a time ---------------------------------------------- */

/* The first call. Without `stream` the answer leaves when it is ended, with its length; with it each
 * http_send leaves at once. Headers that every answer has (x-request-id, …) are added by themselves. */
void http_begin(http_exchange *exchange, int status, const char *content_type, bool stream);
/* Beside those, before the first http_send. */
void http_add_header(http_exchange *exchange, const char *name, const char *value);
/* Bytes of the body, which are copied; none ("", 0) to let the head of a stream leave. False if the client is gone or
 * there is no memory: what is left to do is http_end. */
bool http_send(http_exchange *exchange, const void *bytes, size_t length);
/* Bytes that were sent but that the client has not taken yet. */
size_t http_unsent(http_exchange *exchange);
/* Whether the client still listens; looks at the socket itself. One that has closed its own half is gone. */
bool http_alive(http_exchange *exchange);
/* The answer is complete. The exchange is not used after this. */
void http_end(http_exchange *exchange);
/* All of it for an answer that is known already. */
void http_answer(http_exchange *exchange, int status, const char *content_type, const void *bytes,
                 size_t length);

/* ---- for `finished` ---------------------------------------------------------------------------- */

typedef struct http_summary {
    int status;     /* 0: the client left before one was sent */
    size_t n_sent;  /* bytes of the body that left */
    bool complete;  /* all of the answer did */
    double seconds; /* since the head of the request was in */
} http_summary;
http_summary http_summarise(http_exchange *exchange);

#endif

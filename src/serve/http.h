/* http.h - HTTP as the rest of the server sees it: requests arrive whole, bytes of an answer are sent, the
 * answer is ended, and http_alive tells whether the client is still there. Only http.c uses the library
 * behind it (GNU libmicrohttpd). */
#ifndef DSMOE_SERVE_HTTP_H
#define DSMOE_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

typedef struct http_server http_server;
typedef struct http_exchange http_exchange; /* a request and its answer */

typedef struct http_options {
    const char *host;        /* an address, or a name that resolves to one */
    int port;                /* 0: any free port */
    const char *socket_path; /* a Unix socket instead of host and port; NULL: none */
    const char *cert, *key;  /* PEM files, for TLS; NULL: none */
    int n_threads;
    int max_connections; /* more wait in the kernel's queue */
    size_t max_body;     /* bytes of a request's body; more is answered with 413 */
    size_t max_bodies;   /* of all requests together; more is answered with 503 */
    /* How long a connection may be idle while a request is read, or while bytes of an answer wait for
     * the client. A request must have arrived after twice that time, plus a second for each kilobyte
     * of its body. 0: no limit. */
    int idle_seconds;
    /* Called when the head of a request has arrived, before its body. True: the request was answered
     * (or refused), and its body is discarded. Otherwise `handle` is called when the whole request
     * has arrived. Both run on one of the server's threads. */
    bool (*admit)(void *context, http_exchange *exchange);
    void (*handle)(void *context, http_exchange *exchange);
    /* Makes the body of an answer that http.c gives by itself (400, 413, 503), which frees it. May be
     * NULL. The library's own refusals (431 for a head that is too long) have their own text. */
    char *(*error_body)(int status, const char *message);
    /* Called once for every request whose head arrived, when its answer was sent or its client
     * disconnected. May be NULL. The request can still be read. */
    void (*finished)(void *context, http_exchange *exchange);
    void *context;
} http_options;

/* Starts to listen. */
dsmoe_status http_server_start(const http_options *options, http_server **server,
                               dsmoe_error *error);
/* "http://127.0.0.1:8080" with the actual port, or "unix:/path". */
const char *http_server_url(const http_server *server);
/* Accepts no new connections. Existing ones stay open until their next answer is sent. */
void http_server_quiesce(http_server *server);
/* Closes all connections and ends the server's threads. Exchanges stay valid until http_end, but their
 * clients are gone. `server` may be NULL. */
void http_server_stop(http_server *server);
int http_server_connections(http_server *server);
/* Requests that have arrived and whose answers have not been sent in full. */
int http_server_answers(http_server *server);

/* ---- the request: valid until http_end ----------------------------------------------------------- */

const char *http_method(const http_exchange *exchange);
const char *http_path(const http_exchange *exchange); /* as it was sent, without "?…" */
const char *http_header(const http_exchange *exchange, const char *name);    /* NULL: not there */
const char *http_parameter(const http_exchange *exchange, const char *name); /* after "?"; NULL */
const char *http_body(const http_exchange *exchange, size_t *length);        /* ends with a NUL */
const char *http_id(const http_exchange *exchange);   /* unique: x-request-id */
const char *http_peer(const http_exchange *exchange); /* the client's address */

/* ---- the answer: from any thread, one thread at a time ---------------------------------------------- */

/* Call this before http_send. Without `stream` the answer is sent when it ends, with its length; with
 * `stream` each http_send is sent immediately. http.c adds the headers of every answer (x-request-id, …). */
void http_begin(http_exchange *exchange, int status, const char *content_type, bool stream);
/* Adds another header; call it before the first http_send. */
void http_add_header(http_exchange *exchange, const char *name, const char *value);
/* Copies bytes of the body; ("", 0) sends the head of a stream. False if the client is gone or there is no
 * memory; then only http_end remains to be called. */
bool http_send(http_exchange *exchange, const void *bytes, size_t length);
/* Bytes given to http_send that the client has not taken yet. */
size_t http_unsent(http_exchange *exchange);
/* Whether the client is still connected, by a look at the socket. One that closed its half counts as gone. */
bool http_alive(http_exchange *exchange);
/* Completes the answer. The exchange must not be used after this. */
void http_end(http_exchange *exchange);
/* Sends a whole answer: the three calls above in one. */
void http_answer(http_exchange *exchange, int status, const char *content_type, const void *bytes,
                 size_t length);

/* ---- for `finished` ---------------------------------------------------------------------------- */

typedef struct http_summary {
    int status;     /* 0: the client disconnected before one was sent */
    size_t n_sent;  /* bytes of the body that were sent */
    bool complete;  /* the whole answer was sent */
    double seconds; /* since the head of the request arrived */
} http_summary;
http_summary http_summarise(http_exchange *exchange);

#endif

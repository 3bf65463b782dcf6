/* http_request.h - a request that was read, as copies that outlive its connection. */
#ifndef DSMOE_SERVE_HTTP_REQUEST_H
#define DSMOE_SERVE_HTTP_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "serve/http_fields.h"

/* The bodies of all requests of a server. */
typedef struct http_bodies {
    size_t max, max_all; /* bytes of one body, of all together */
    atomic_size_t n_all; /* bytes held now */
} http_bodies;

typedef struct http_request {
    char *method, *path;
    http_fields headers, parameters;
    char *body; /* with a NUL after it; NULL: empty */
    size_t length, capacity;
    char id[33];   /* 128 random bits */
    char peer[64]; /* address of the client */
} http_request;

/* Makes a request without headers or body. Call http_request_free in any case. `peer` may be NULL. False: no
 * memory or no random bytes. */
bool http_request_init(http_request *r, const char *method, const char *path,
                       const struct sockaddr *peer);
/* Adds bytes to the body. Returns 0, or the status to refuse the request with. Memory grows with the bytes
 * that arrive, not with Content-Length. */
int http_request_add(http_request *r, const char *bytes, size_t length, http_bodies *bodies);
void http_request_free(http_request *r, http_bodies *bodies);

#endif

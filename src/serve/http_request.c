/* http_request.c - a request that was read. */
#include "serve/http_request.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/checked.h"

static bool make_id(char id[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return false;
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

bool http_request_init(http_request *r, const char *method, const char *path,
                       const struct sockaddr *peer)
{
    *r = (http_request){.method = strdup(method), .path = strdup(path), .peer = "unix"};
    int family = peer ? peer->sa_family : AF_UNIX;
    socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (family == AF_INET || family == AF_INET6)
        getnameinfo(peer, size, r->peer, sizeof r->peer, NULL, 0, NI_NUMERICHOST);
    return r->method && r->path && make_id(r->id);
}

/* Makes room for `length` more bytes and a NUL. Returns 0 or a status. */
static int grow(http_request *r, size_t length, http_bodies *bodies)
{
    size_t capacity = r->capacity ? r->capacity : 1024;
    while (capacity - r->length <= length)
        if (!checked_mul_size(capacity, 2, &capacity)) return 413;
    if (capacity == r->capacity) return 0;
    size_t more = capacity - r->capacity;
    char *grown = NULL;
    if (atomic_fetch_add(&bodies->n_all, more) + more <= bodies->max_all)
        grown = realloc(r->body, capacity);
    if (!grown) {
        atomic_fetch_sub(&bodies->n_all, more);
        return 503;
    }
    r->body = grown;
    r->capacity = capacity;
    return 0;
}

int http_request_add(http_request *r, const char *bytes, size_t length, http_bodies *bodies)
{
    if (length > bodies->max - r->length) return 413;
    int status = grow(r, length, bodies);
    if (status) return status;
    memcpy(r->body + r->length, bytes, length);
    r->length += length;
    r->body[r->length] = '\0';
    return 0;
}

void http_request_free(http_request *r, http_bodies *bodies)
{
    atomic_fetch_sub(&bodies->n_all, r->capacity);
    http_fields_free(&r->headers);
    http_fields_free(&r->parameters);
    free(r->method);
    free(r->path);
    free(r->body);
    *r = (http_request){0};
}

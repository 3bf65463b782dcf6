/* guard.h - who may ask: the key, the Host that a browser believes to talk to, and the Origin of the page that
 * makes it talk. Pure functions of a request's headers. */
#ifndef DSMOE_SERVE_GUARD_H
#define DSMOE_SERVE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

typedef struct guard {
    char **keys; /* from guard_add_key; none: no key is needed */
    size_t n_keys;
    const char *const *hosts; /* names beside this machine's own and addresses */
    size_t n_hosts;
    const char *const *origins; /* other pages that may use the server; "*": all */
    size_t n_origins;
} guard;

/* Adds a key of 1 to 512 bytes without control characters, or those of a file, one a line; empty lines and
 * those that begin with # are none, but there must be one. */
dsmoe_status guard_add_key(guard *g, const char *key, dsmoe_error *error);
dsmoe_status guard_add_key_file(guard *g, const char *path, dsmoe_error *error);
void guard_free(guard *g);

/* What a request says of itself; NULL: nothing. */
typedef struct guard_request {
    const char *method, *path;
    const char *host, *origin, *authorization, *api_key;
    bool local; /* it came by a Unix socket, where Host means nothing */
} guard_request;

/* NULL if it may pass, otherwise what is wrong, with *status 401 or 403. */
const char *guard_check(const guard *g, const guard_request *r, int *status);
/* The value of Access-Control-Allow-Origin for it; NULL: none. */
const char *guard_allowed_origin(const guard *g, const guard_request *r);
/* Whether the path needs no key: the page and /health. */
bool guard_is_public(const char *path);

#endif

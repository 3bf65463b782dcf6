/* guard.h - which requests are allowed. Checks the headers: the API key, the Host that a browser takes the
 * server for, and the Origin of the page that sends the request. */
#ifndef DSMOE_SERVE_GUARD_H
#define DSMOE_SERVE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

typedef struct guard {
    char **keys; /* from guard_add_key; none: no key is needed */
    size_t n_keys;
    const char *const *hosts; /* allowed in addition to addresses and this machine's names */
    size_t n_hosts;
    const char *const *origins; /* other pages that may use the server; "*": all */
    size_t n_origins;
} guard;

/* Adds a key of 1 to 512 bytes without control characters, or the keys of a file, one per line. Empty lines
 * and lines that begin with # are skipped; a file without keys is an error. */
dsmoe_status guard_add_key(guard *g, const char *key, dsmoe_error *error);
dsmoe_status guard_add_key_file(guard *g, const char *path, dsmoe_error *error);
void guard_free(guard *g);

/* The parts of a request that are checked; NULL: not present. */
typedef struct guard_request {
    const char *method, *path;
    const char *host, *origin, *authorization, *api_key;
    bool local; /* it came through a Unix socket, where Host has no meaning */
} guard_request;

/* NULL if the request is allowed, otherwise what is wrong, with *status 401 or 403. */
const char *guard_check(const guard *g, const guard_request *r, int *status);
/* The value of Access-Control-Allow-Origin for the request; NULL: none. */
const char *guard_allowed_origin(const guard *g, const guard_request *r);
/* Whether the path needs no key: the page and /health. */
bool guard_is_public(const char *path);

#endif

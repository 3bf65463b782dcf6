/* remote.h - a server elsewhere with OpenAI's interface: one request at a time over HTTP. Only remote.c uses
 * the library for it, libcurl. */
#ifndef DSMOE_CLI_REMOTE_H
#define DSMOE_CLI_REMOTE_H

#include <stddef.h>

#include "dsmoe.h"
#include "serve/client_events.h"

typedef struct remote_address {
    const char *url; /* http or https, optionally with a path such as /v1; NULL with a socket */
    const char *unix_path; /* a Unix socket; NULL: none */
    const char *api_key;   /* NULL: none. No message shows it */
    const char *ca_file;   /* certificates to trust; NULL: those that the system trusts */
    double max_silence;    /* seconds without a byte that end an answer; 0: a minute */
} remote_address;

typedef struct remote remote;

/* Does not connect yet. CLI_OK, or an exit code after a message about the address. */
int remote_open(const char *command, const remote_address *address, remote **r);
void remote_close(remote *r); /* NULL is allowed */

/* The server as messages name it: its URL without /v1, or its socket. */
const char *remote_name(const remote *r);

typedef enum remote_end {
    REMOTE_ANSWERED,    /* to the end, or until `events` wanted no more */
    REMOTE_TOO_LONG,    /* refused: it does not fit the context; `error` has the server's words */
    REMOTE_INTERRUPTED, /* by Ctrl-C */
    REMOTE_FAILED,      /* `error` says why, but not which server */
} remote_end;

/* The name of the model that the server has, to be freed; NULL if it does not say. */
remote_end remote_ask_model(remote *r, char **model, dsmoe_error *error);

/* Sends JSON to a path such as "/v1/completions" and passes the streamed answer to `events`. */
remote_end remote_post(remote *r, const char *path, const char *body, size_t length,
                       client_events *events, dsmoe_error *error);

#endif

/* http_socket.h - the socket that a server listens on: an address and a port, or a file. */
#ifndef DSMOE_SERVE_HTTP_SOCKET_H
#define DSMOE_SERVE_HTTP_SOCKET_H

#include <sys/types.h>

#include "dsmoe.h"

typedef struct http_socket {
    int descriptor; /* listening, non-blocking; the caller closes it */
    char url[512];  /* "http://127.0.0.1:8080" or "unix:/path" */
    char *path;     /* of the socket file; NULL: none */
    dev_t device;   /* of the file that was made */
    ino_t inode;
} http_socket;

/* `scheme` is "http" or "https". With `port` 0 the system chooses one. */
dsmoe_status http_socket_open(http_socket *listener, const char *scheme, const char *host, int port,
                              dsmoe_error *error);
/* Replaces a socket file that an ended server left. Any other existing file is an error. */
dsmoe_status http_socket_open_file(http_socket *listener, const char *path, dsmoe_error *error);
/* Removes the file, if it is still the one that was made. The descriptor stays open. */
void http_socket_forget(http_socket *listener);

#endif

/* http_tls.h - a server's TLS certificate and key. */
#ifndef DSMOE_SERVE_HTTP_TLS_H
#define DSMOE_SERVE_HTTP_TLS_H

#include "dsmoe.h"

typedef struct http_tls {
    char *cert, *key; /* PEM; NULL: no TLS */
} http_tls;

/* Reads two PEM files; if both are NULL there is no TLS. Call http_tls_free in any case. */
dsmoe_status http_tls_read(http_tls *tls, const char *cert, const char *key, dsmoe_error *error);
/* Erases the key from memory and frees both. */
void http_tls_free(http_tls *tls);

#endif

/* http_tls.h - the certificate of a server and its key. */
#ifndef DSMOE_SERVE_HTTP_TLS_H
#define DSMOE_SERVE_HTTP_TLS_H

#include "dsmoe.h"

typedef struct http_tls {
    char *cert, *key; /* PEM; NULL: no TLS */
} http_tls;

/* From two files; neither: no TLS. http_tls_free in any case. */
dsmoe_status http_tls_read(http_tls *tls, const char *cert, const char *key, dsmoe_error *error);
/* Leaves nothing of the key in memory. */
void http_tls_free(http_tls *tls);

#endif

/* http_tls.c - a server's TLS certificate and key. */
#include "serve/http_tls.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "formats/whole_file.h"

enum { MAX_PEM = 1 << 20 };

/* A PEM file as a string. */
static dsmoe_status read_pem(const char *path, char **text, dsmoe_error *error)
{
    whole_file file;
    STATUS_TRY(whole_file_read(&file, path, MAX_PEM, error));
    *text = strndup(file.bytes, file.size);
    explicit_bzero(file.bytes, file.size);
    whole_file_free(&file);
    if (!*text) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    if (!strstr(*text, "-----BEGIN "))
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: not a PEM file", path);
    return DSMOE_OK;
}

dsmoe_status http_tls_read(http_tls *tls, const char *cert, const char *key, dsmoe_error *error)
{
    *tls = (http_tls){0};
    if (!cert && !key) return DSMOE_OK;
    if (!cert || !key)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "TLS needs both a certificate and its key");
    STATUS_TRY(read_pem(cert, &tls->cert, error));
    return read_pem(key, &tls->key, error);
}

void http_tls_free(http_tls *tls)
{
    if (tls->key) explicit_bzero(tls->key, strlen(tls->key));
    free(tls->key);
    free(tls->cert);
    *tls = (http_tls){0};
}

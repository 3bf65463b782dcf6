/* http_bytes.h - bytes that wait: added at one end, taken from the other. */
#ifndef DSMOE_SERVE_HTTP_BYTES_H
#define DSMOE_SERVE_HTTP_BYTES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct http_bytes {
    char *memory;
    size_t first, last, capacity; /* they lie from `first` to `last` */
} http_bytes;

/* False if there is no memory; nothing was added then. */
bool http_bytes_add(http_bytes *b, const void *bytes, size_t length);
/* At most `max`: how many. */
size_t http_bytes_take(http_bytes *b, void *bytes, size_t max);
size_t http_bytes_count(const http_bytes *b);
void http_bytes_free(http_bytes *b);

#endif

/* http_bytes.h - a queue of bytes. */
#ifndef DSMOE_SERVE_HTTP_BYTES_H
#define DSMOE_SERVE_HTTP_BYTES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct http_bytes {
    char *memory;
    size_t first, last, capacity; /* the bytes are from `first` to before `last` */
} http_bytes;

/* False if there is no memory; then nothing is added. */
bool http_bytes_add(http_bytes *b, const void *bytes, size_t length);
/* Takes at most `max` bytes; returns how many. */
size_t http_bytes_take(http_bytes *b, void *bytes, size_t max);
size_t http_bytes_count(const http_bytes *b);
void http_bytes_free(http_bytes *b);

#endif

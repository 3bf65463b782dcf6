/* http_bytes.c - a queue of bytes. */
#include "serve/http_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

size_t http_bytes_count(const http_bytes *b) { return b->last - b->first; }

/* Makes room for `length` bytes after `last`. */
static bool make_room(http_bytes *b, size_t length)
{
    size_t n = http_bytes_count(b), capacity = b->capacity ? b->capacity : 512, need;
    if (!checked_add_size(n, length, &need)) return false;
    while (capacity < need)
        if (!checked_mul_size(capacity, 2, &capacity)) return false;
    if (capacity > b->capacity) {
        char *grown = realloc(b->memory, capacity);
        if (!grown) return false;
        b->memory = grown;
        b->capacity = capacity;
    }
    if (b->capacity - b->last < length) {
        memmove(b->memory, b->memory + b->first, n);
        b->first = 0;
        b->last = n;
    }
    return true;
}

bool http_bytes_add(http_bytes *b, const void *bytes, size_t length)
{
    if (!length) return true;
    if (!make_room(b, length)) return false;
    memcpy(b->memory + b->last, bytes, length);
    b->last += length;
    return true;
}

size_t http_bytes_take(http_bytes *b, void *bytes, size_t max)
{
    size_t n = http_bytes_count(b) < max ? http_bytes_count(b) : max;
    if (!n) return 0;
    memcpy(bytes, b->memory + b->first, n);
    b->first += n;
    if (b->first == b->last) b->first = b->last = 0;
    return n;
}

void http_bytes_free(http_bytes *b)
{
    free(b->memory);
    *b = (http_bytes){0};
}

/* buffer.h - arrays that grow: bytes of a text, ids of tokens. A zeroed buffer is an empty one. */
#ifndef DSMOE_TEXT_BUFFER_H
#define DSMOE_TEXT_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct byte_buffer {
    char *bytes;
    size_t length, capacity;
} byte_buffer;

dsmoe_status byte_buffer_append(byte_buffer *buffer, const char *bytes, size_t length,
                                dsmoe_error *error);
void byte_buffer_free(byte_buffer *buffer);

typedef struct id_buffer {
    int32_t *ids;
    size_t count, capacity;
} id_buffer;

dsmoe_status id_buffer_reserve(id_buffer *buffer, size_t capacity, dsmoe_error *error);
dsmoe_status id_buffer_append(id_buffer *buffer, int32_t id, dsmoe_error *error);
void id_buffer_free(id_buffer *buffer);

/* Grows *memory, which has room for *capacity elements of `size` bytes, to at least `needed` elements.
 * The capacity doubles, so that appending one by one takes linear time. */
dsmoe_status buffer_grow(void **memory, size_t *capacity, size_t needed, size_t size,
                         dsmoe_error *error);

#endif

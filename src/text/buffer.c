/* buffer.c - arrays that grow. */
#include "text/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

dsmoe_status buffer_grow(void **memory, size_t *capacity, size_t needed, size_t size,
                         dsmoe_error *error)
{
    if (needed <= *capacity) return DSMOE_OK;
    size_t grown = *capacity < 8 ? 16 : *capacity, bytes;
    if (!checked_mul_size(grown, 2, &grown) || grown < needed) grown = needed;
    if (!checked_mul_size(grown, size, &bytes))
        return status_fail(error, DSMOE_ERROR_MEMORY, "%zu elements do not fit into memory", grown);
    void *larger = realloc(*memory, bytes);
    if (!larger)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu bytes", bytes);
    *memory = larger;
    *capacity = grown;
    return DSMOE_OK;
}

dsmoe_status byte_buffer_append(byte_buffer *buffer, const char *bytes, size_t length,
                                dsmoe_error *error)
{
    if (length == 0) return DSMOE_OK;
    size_t needed;
    if (!checked_add_size(buffer->length, length, &needed))
        return status_fail(error, DSMOE_ERROR_MEMORY, "a text does not fit into memory");
    void *memory = buffer->bytes;
    STATUS_TRY(buffer_grow(&memory, &buffer->capacity, needed, 1, error));
    buffer->bytes = memory;
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length = needed;
    return DSMOE_OK;
}

void byte_buffer_free(byte_buffer *buffer)
{
    free(buffer->bytes);
    memset(buffer, 0, sizeof *buffer);
}

dsmoe_status id_buffer_reserve(id_buffer *buffer, size_t capacity, dsmoe_error *error)
{
    void *memory = buffer->ids;
    STATUS_TRY(buffer_grow(&memory, &buffer->capacity, capacity, sizeof *buffer->ids, error));
    buffer->ids = memory;
    return DSMOE_OK;
}

dsmoe_status id_buffer_append(id_buffer *buffer, int32_t id, dsmoe_error *error)
{
    if (buffer->count == buffer->capacity)
        STATUS_TRY(id_buffer_reserve(buffer, buffer->count + 1, error));
    buffer->ids[buffer->count++] = id;
    return DSMOE_OK;
}

void id_buffer_free(id_buffer *buffer)
{
    free(buffer->ids);
    memset(buffer, 0, sizeof *buffer);
}

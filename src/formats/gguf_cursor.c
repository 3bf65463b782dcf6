/* gguf_cursor.c - walks over the bytes of a GGUF file, never past their end. */
#include <string.h>

#include "base/utf8.h"
#include "formats/gguf_parts.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are little-endian and used in place");

bool gguf_cursor_take(gguf_cursor *cursor, size_t size, const unsigned char **at)
{
    if (size > cursor->size - cursor->at) return false;
    *at = cursor->bytes + cursor->at;
    cursor->at += size;
    return true;
}

bool gguf_cursor_u32(gguf_cursor *cursor, uint32_t *value)
{
    const unsigned char *at;
    if (!gguf_cursor_take(cursor, sizeof *value, &at)) return false;
    memcpy(value, at, sizeof *value);
    return true;
}

bool gguf_cursor_u64(gguf_cursor *cursor, uint64_t *value)
{
    const unsigned char *at;
    if (!gguf_cursor_take(cursor, sizeof *value, &at)) return false;
    memcpy(value, at, sizeof *value);
    return true;
}

bool gguf_name_is_text(gguf_string name)
{
    for (size_t at = 0, width; at < name.length; at += width) {
        width = utf8_character(name.bytes + at, name.length - at);
        if (width == 0 || (unsigned char)name.bytes[at] < 0x20 || name.bytes[at] == 0x7f)
            return false;
    }
    return true;
}

bool gguf_name_leads_away(const char *name) { return strchr(name, '/') || strstr(name, ".."); }

dsmoe_status gguf_cursor_name(gguf_cursor *cursor, const char *what, size_t index, size_t longest,
                              gguf_string *name, dsmoe_error *error)
{
    size_t begin = cursor->at;
    uint64_t length;
    if (!gguf_cursor_u64(cursor, &length))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the file ends at offset %zu, where %s %zu should be", cursor->path,
                           begin, what, index);
    if (length == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s %zu at offset %zu has no name",
                           cursor->path, what, index, begin);
    if (length > longest)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: %s %zu at offset %zu has a name of %llu bytes, at most %zu are "
                           "allowed",
                           cursor->path, what, index, begin, (unsigned long long)length, longest);
    const unsigned char *bytes;
    if (!gguf_cursor_take(cursor, (size_t)length, &bytes))
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: %s %zu at offset %zu has a name of %llu bytes, but only %zu follow: "
            "file cut short?",
            cursor->path, what, index, begin, (unsigned long long)length,
            cursor->size - cursor->at);
    *name = (gguf_string){(const char *)bytes, (size_t)length};
    if (!gguf_name_is_text(*name))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the name of %s %zu at offset %zu is not plain UTF-8 text",
                           cursor->path, what, index, begin);
    return DSMOE_OK;
}

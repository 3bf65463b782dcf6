/* byte_map.c - the alphabet of byte-level vocabularies. */
#include "text/byte_map.h"

#include "base/utf8.h"

/* Codes from U+0100 stand for the bytes that do not print: 0x00-0x20, 0x7f-0xa0 and 0xad. */
enum { FIRST = 0x100, N_LOW = 0x21, N_HIGH = 0xa1 - 0x7f };

int byte_map_byte(uint32_t code)
{
    if (code < FIRST) {
        bool prints = (code > 0x20 && code < 0x7f) || (code > 0xa0 && code != 0xad);
        return prints ? (int)code : -1;
    }
    uint32_t n = code - FIRST;
    if (n < N_LOW) return (int)n;
    if (n < N_LOW + N_HIGH) return (int)(n - N_LOW + 0x7f);
    return n == N_LOW + N_HIGH ? 0xad : -1;
}

bool byte_map_decode(const char *key, size_t length, char *bytes, size_t *n_bytes)
{
    size_t n = 0;
    for (size_t at = 0; at < length; n++) {
        uint32_t code;
        size_t width = utf8_decode(key + at, length - at, &code);
        int byte = width ? byte_map_byte(code) : -1;
        if (byte < 0) return false;
        bytes[n] = (char)byte;
        at += width;
    }
    *n_bytes = n;
    return true;
}

/* utf8.c - finds the end of a UTF-8 character, and decodes it. */
#include "base/utf8.h"

/* Bytes of a character with this first byte, and the range of its second byte, which excludes overlong forms,
 * surrogates and codes above U+10FFFF. 0: no character begins with this byte. */
static size_t lead_width(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    if (lead < 0xe0) return 2;
    if (lead == 0xe0) *low = 0xa0;
    if (lead == 0xed) *high = 0x9f;
    if (lead == 0xf0) *low = 0x90;
    if (lead == 0xf4) *high = 0x8f;
    return lead < 0xf0 ? 3 : 4;
}

size_t utf8_begun(const unsigned char *text, size_t length, size_t *width)
{
    unsigned char low, high;
    *width = length ? lead_width(text[0], &low, &high) : 0;
    if (*width == 0) return 0;
    size_t n = 1;
    for (; n < *width && n < length; n++) {
        if (text[n] < low || text[n] > high) break;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

size_t utf8_character(const void *text, size_t length)
{
    size_t width;
    return utf8_begun(text, length, &width) == width ? width : 0;
}

bool utf8_is_whole(const void *text, size_t length)
{
    const char *bytes = text;
    for (size_t i = 0, width; i < length; i += width) {
        width = utf8_character(bytes + i, length - i);
        if (width == 0) return false;
    }
    return true;
}

size_t utf8_decode(const void *text, size_t length, uint32_t *code)
{
    const unsigned char *bytes = text;
    if (length > 0 && bytes[0] < 0x80) {
        *code = bytes[0];
        return 1;
    }
    size_t width = utf8_character(text, length);
    if (width == 0) return 0;
    *code = bytes[0] & (0x7fu >> width);
    for (size_t i = 1; i < width; i++) *code = *code << 6 | (bytes[i] & 0x3f);
    return width;
}

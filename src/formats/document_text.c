/* document_text.c - finding the bytes that are not text, and replacing them. */
#include "formats/document_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"

enum { LOOKED_AT = 8000 }; /* bytes at the start of a file that are searched for a NUL */
static const double most_bad = 0.3;
static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
enum { REPLACEMENT = sizeof replacement - 1 };

size_t document_character(const unsigned char *text, size_t length)
{
    return text[0] ? utf8_character(text, length) : 0;
}

/* The number of bytes at the start that are text. Tests eight at a time where all are ASCII. */
static size_t good_length(const unsigned char *text, size_t length)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t at = 0;
    while (at < length) {
        uint64_t word;
        if (length - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if (!(word & tops) && !((word - ones) & tops)) { /* no high bit, no NUL */
                at += sizeof word;
                continue;
            }
        }
        size_t n = document_character(text + at, length - at);
        if (n == 0) break;
        at += n;
    }
    return at;
}

size_t document_bad_bytes(const void *text, size_t length)
{
    const unsigned char *bytes = text;
    size_t n_bad = 0;
    for (size_t at = good_length(bytes, length); at < length; n_bad++) {
        at++;
        at += good_length(bytes + at, length - at);
    }
    return n_bad;
}

bool document_is_binary(const void *bytes, size_t size, size_t n_bad, bool by_share)
{
    if (memchr(bytes, '\0', size < LOOKED_AT ? size : LOOKED_AT)) return true;
    return by_share && (double)n_bad > most_bad * (double)size;
}

char *document_replace_bad(const void *text, size_t length, size_t n_bad, size_t *new_length)
{
    const unsigned char *bytes = text;
    size_t size;
    if (!checked_mul_size(n_bad, REPLACEMENT - 1, &size) ||
        !checked_add_size(size, length, &size) || !checked_add_size(size, 1, &size))
        return NULL;
    char *made = malloc(size), *next = made;
    if (!made) return NULL;
    for (size_t at = 0; at < length;) {
        size_t n = good_length(bytes + at, length - at);
        memcpy(next, bytes + at, n);
        next += n;
        at += n;
        if (at == length) break;
        at++;
        /* If another program writes to the mapped file, it may now have more bad bytes than counted. */
        size_t width = n_bad > 0 ? REPLACEMENT : 1;
        memcpy(next, n_bad > 0 ? replacement : "?", width);
        next += width;
        n_bad -= n_bad > 0;
    }
    *new_length = (size_t)(next - made);
    *next = '\0';
    return made;
}

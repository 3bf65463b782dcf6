/* utf8.h - the characters of UTF-8, strictly: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef DSMOE_BASE_UTF8_H
#define DSMOE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that the text begins with; 0 if there is no valid character, or only a part of
 * one. */
size_t utf8_character(const void *text, size_t length);

/* Whether the text consists of whole characters only. */
bool utf8_is_whole(const void *text, size_t length);

/* Decodes the character that the text begins with, and returns its bytes; 0 if there is no whole
 * character. */
size_t utf8_decode(const void *text, size_t length, uint32_t *code);

/* Whether a byte can only be inside a character, after its first byte. */
static inline bool utf8_is_inside(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* How many of the first bytes can belong to one character; that character has *width bytes. */
size_t utf8_begun(const unsigned char *text, size_t length, size_t *width);

#endif

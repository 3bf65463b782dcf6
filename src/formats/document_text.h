/* document_text.h - finding the bytes that are not text, and replacing them.
 *
 * A bad byte belongs to no UTF-8 character, or is NUL, which no text contains. One bad byte in a book
 * is an accident and no reason to drop the book; a picture or a program is full of them. */
#ifndef DSMOE_FORMATS_DOCUMENT_TEXT_H
#define DSMOE_FORMATS_DOCUMENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the character at the start of the text in bytes; 0 if the first byte is bad. */
size_t document_character(const unsigned char *text, size_t length);

size_t document_bad_bytes(const void *text, size_t length);

/* Whether a file cannot be meant as text: it has a NUL among its first 8000 bytes (tools like grep use a
 * similar test), or, if `by_share` is true, more than three bad bytes in ten. */
bool document_is_binary(const void *bytes, size_t size, size_t n_bad, bool by_share);

/* A copy of the text with U+FFFD (three bytes) in place of each of its n_bad bad bytes. The caller frees
 * it. NULL if out of memory. */
char *document_replace_bad(const void *text, size_t length, size_t n_bad, size_t *new_length);

#endif

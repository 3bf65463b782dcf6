/* document_text.h - which bytes are text, and what becomes of the others.
 *
 * A bad byte is one that belongs to no character of UTF-8, or NUL, which no text has. One in a book
 * is an accident and no reason to lose the book; a picture or a program is full of them. */
#ifndef DSMOE_FORMATS_DOCUMENT_TEXT_H
#define DSMOE_FORMATS_DOCUMENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that the text begins with; 0 if that byte is bad. */
size_t document_character(const unsigned char *text, size_t length);

size_t document_bad_bytes(const void *text, size_t length);

/* Whether a file cannot be meant as text: a NUL among its first 8000 bytes, as tools like grep look for
 * one; or, if `by_share` is true, more than three bad bytes in ten. */
bool document_is_binary(const void *bytes, size_t size, size_t n_bad, bool by_share);

/* The text with U+FFFD, three bytes, in place of each of its n_bad bad bytes; in memory to free(), NULL
 * without. */
char *document_replace_bad(const void *text, size_t length, size_t n_bad, size_t *new_length);

#endif

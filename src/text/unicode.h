/* unicode.h - UTF-8 and the properties of characters. The library behind it (utf8proc) is named in
 * unicode.c only. */
#ifndef DSMOE_TEXT_UNICODE_H
#define DSMOE_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/buffer.h"

size_t unicode_encode(uint32_t code, char bytes[4]);
/* The number of bytes at the start that are whole characters. */
size_t unicode_valid_length(const char *text, size_t length);

bool unicode_is_whitespace(uint32_t code); /* White_Space */
bool unicode_is_numeric(uint32_t code);    /* Nd, Nl, No */
bool unicode_is_mark(uint32_t code);       /* Mn, Mc, Me */
bool unicode_is_word(uint32_t code);       /* letters, marks, decimal digits, connectors */

/* The lower-case form, one or two characters. */
int unicode_lower(uint32_t code, uint32_t lower[2]);

typedef enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;

/* Appends the normalisation form of a valid text. Takes linear time, however many marks it has. */
dsmoe_status unicode_normalize(unicode_form form, const char *text, size_t length, byte_buffer *out,
                               dsmoe_error *error);

#endif

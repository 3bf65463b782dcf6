/* json_write.h - strings and numbers of JSON text that is written rather than read. */
#ifndef DSMOE_FORMATS_JSON_WRITE_H
#define DSMOE_FORMATS_JSON_WRITE_H

#include <stddef.h>
#include <stdio.h>

/* With quotes and escapes. UTF-8 goes through as it is; a byte of no character becomes U+FFFD. */
void json_write_string(FILE *text, const char *string);
/* The same of text of a known length, which may hold NULs. */
void json_write_text(FILE *text, const char *bytes, size_t length);
/* As few digits as give the same double back; a point whatever the locale. Finite numbers only. */
void json_write_number(FILE *text, double number);

#endif

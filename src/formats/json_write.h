/* json_write.h - writes strings and numbers as JSON. */
#ifndef DSMOE_FORMATS_JSON_WRITE_H
#define DSMOE_FORMATS_JSON_WRITE_H

#include <stddef.h>
#include <stdio.h>

/* Adds quotes and escapes. UTF-8 stays as it is; a byte that is in no character becomes U+FFFD. */
void json_write_string(FILE *text, const char *string);
/* The same for text of a known length, which may hold NULs. */
void json_write_text(FILE *text, const char *bytes, size_t length);
/* Writes the fewest digits that read back as the same double, with a point in every locale. Finite
 * numbers only. */
void json_write_number(FILE *text, double number);

#endif

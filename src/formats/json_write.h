/* json_write.h - strings and numbers of JSON text that is written rather than read. */
#ifndef DSMOE_FORMATS_JSON_WRITE_H
#define DSMOE_FORMATS_JSON_WRITE_H

#include <stdio.h>

/* With quotes and escapes. UTF-8 goes through as it is. */
void json_write_string(FILE *text, const char *string);
/* As few digits as give the same double back; a point whatever the locale. Finite numbers only. */
void json_write_number(FILE *text, double number);

#endif

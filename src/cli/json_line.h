/* json_line.h - reads one member of the object on a line of JSON Lines. Anything on the line that the JSON
 * standard does not allow is an error. */
#ifndef DSMOE_CLI_JSON_LINE_H
#define DSMOE_CLI_JSON_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

/* The string under `key` as UTF-8, ended by a NUL that *length does not count; to be freed. NULL on
 * failure. */
char *json_line_string(const char *line, size_t line_length, const char *key, size_t *length,
                       dsmoe_error *error);

/* The array of token ids under `key`; to be freed. NULL on failure. */
int32_t *json_line_ids(const char *line, size_t line_length, const char *key, size_t *n_ids,
                       dsmoe_error *error);

#endif

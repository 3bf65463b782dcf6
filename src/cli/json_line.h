/* json_line.h - one line of JSON lines: an object of which one member is wanted. What the JSON standard does not
 * allow is an error, anywhere on the line. */
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

/* json_line.h - one line of JSON lines: an object of which one member is wanted. Strict: what the
 * JSON standard does not allow is an error, anywhere on the line. */
#ifndef DSMOE_CLI_JSON_LINE_H
#define DSMOE_CLI_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json_line_error {
    size_t offset;    /* bytes from the start of the line */
    char message[96]; /* "": nothing is wrong */
} json_line_error;

/* The string under `key` as UTF-8, ended by a NUL that *length does not count; to be freed. NULL on
 * failure. */
char *json_line_string(const char *line, size_t line_length, const char *key, size_t *length,
                       json_line_error *error);

/* The array of token ids under `key`; to be freed. NULL on failure. */
int32_t *json_line_ids(const char *line, size_t line_length, const char *key, size_t *n_ids,
                       json_line_error *error);

/* Shows every element of an array, as the JSON it is written in, to `visit`, until that returns false. Here
 * the text may have several lines. False on failure; *error says nothing if it was `visit` that ended it. */
typedef bool json_item_fn(void *context, const char *item, size_t length);
bool json_line_each(const char *text, size_t length, json_item_fn *visit, void *context,
                    json_line_error *error);

#endif

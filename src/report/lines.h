/* lines.h - the lines of metrics.jsonl one by one, as JSON. */
#ifndef DSMOE_REPORT_LINES_H
#define DSMOE_REPORT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "formats/json.h"

typedef struct line_reader {
    FILE *file;
    size_t left;       /* bytes left to read of the size that the file had when opened */
    size_t number;     /* of the current line, from 1 */
    char *text;        /* of the current line, with its newline if it has one */
    size_t length;     /* of the text without the newline */
    size_t capacity;   /* of text */
    bool whole;        /* the line ends with a newline */
    json_node *object; /* the line; NULL if it is not an object or is far too long */
    dsmoe_status status;
} line_reader;

/* Lines are read one by one: a log may be long, and another process may be writing to it. */
dsmoe_status line_reader_open(line_reader *reader, const char *path, dsmoe_error *error);
/* Reads the next `size` bytes of an open file. line_reader_close closes the file. */
line_reader line_reader_of(FILE *file, size_t size);
/* Reads the next line that is not empty; false after the last line, and if a line cannot be read. */
bool line_reader_next(line_reader *reader);
/* Fails if a line could not be read. */
dsmoe_status line_reader_check(const line_reader *reader, const char *path, dsmoe_error *error);
/* Hands over the object of the current line, which the caller frees. */
json_node *line_reader_take(line_reader *reader);
void line_reader_close(line_reader *reader); /* allowed on zeros */

/* Members of an object. A member that is missing, of another kind, or beyond ±1e30, which no run reaches, is
 * NAN, NULL or false. `object` may be NULL. */
double line_number(const json_node *object, const char *key);
const char *line_text(const json_node *object, const char *key);
bool line_flag(const json_node *object, const char *key);
const json_node *line_array(const json_node *object, const char *key);
const json_node *line_object(const json_node *object, const char *key);
/* The same for the items of an array, which may be NULL, and their number. */
double line_item(const json_node *array, size_t index);
const json_node *line_item_array(const json_node *array, size_t index);
size_t line_count(const json_node *array);

#endif

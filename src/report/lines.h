/* lines.h - the lines of metrics.jsonl one by one, as JSON. */
#ifndef DSMOE_REPORT_LINES_H
#define DSMOE_REPORT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "formats/json.h"

typedef struct line_reader {
    FILE *file;
    size_t left;     /* bytes of it as it was opened, whatever is written after them meanwhile */
    size_t number;   /* of the line below, from 1 */
    char *text;      /* with its newline, if it has one */
    size_t length;   /* its bytes without that */
    size_t capacity; /* of text */
    bool whole;      /* a newline ended it */
    json_node
        *object; /* what it says; NULL if that is not an object, or the line is far too long */
    dsmoe_status status;
} line_reader;

/* Reads as it goes: a log may be long, and someone may be writing to it. */
dsmoe_status line_reader_open(line_reader *reader, const char *path, dsmoe_error *error);
/* The next `size` bytes of a file that is open; line_reader_close closes it. */
line_reader line_reader_of(FILE *file, size_t size);
/* The next line that is not empty; false after the last, and when it cannot be read. */
bool line_reader_next(line_reader *reader);
/* Whether all lines could be read so far. */
dsmoe_status line_reader_check(const line_reader *reader, const char *path, dsmoe_error *error);
/* The object of this line, from now on the caller's to free. */
json_node *line_reader_take(line_reader *reader);
void line_reader_close(line_reader *reader); /* allowed on zeros */

/* Values as a file should have them. What is missing, of another kind, or of a size that no run comes
 * to (beyond ±1e30) is NAN, NULL or false. `object` may be NULL. */
double line_number(const json_node *object, const char *key);
const char *line_text(const json_node *object, const char *key);
bool line_flag(const json_node *object, const char *key);
const json_node *line_array(const json_node *object, const char *key);
const json_node *line_object(const json_node *object, const char *key);
/* The same for an item of an array, which may be NULL, and the number of items. */
double line_item(const json_node *array, size_t index);
const json_node *line_item_array(const json_node *array, size_t index);
size_t line_count(const json_node *array);

#endif

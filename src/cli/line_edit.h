/* line_edit.h - lines from standard input. On a terminal they can be edited, and a history is kept for the
 * next time. */
#ifndef DSMOE_CLI_LINE_EDIT_H
#define DSMOE_CLI_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_edit line_edit;

typedef enum line_result {
    LINE_READ,
    LINE_END,         /* the end of the input: Ctrl-D */
    LINE_INTERRUPTED, /* cli_interrupted() is true */
    LINE_FAILED,      /* out of memory, or the input cannot be read */
} line_result;

/* The prompt is shown only on a terminal. There a history is kept too, if it is wanted and there is a place
 * for it. NULL if there is not enough memory. */
line_edit *line_edit_open(const char *prompt, bool keeps_history);
/* Reads a line, without its newline and ended by a NUL; it is valid until the next call. */
line_result line_edit_read(line_edit *e, const char **line, size_t *length);
/* Also saves the history for the next time, if that is possible. */
void line_edit_close(line_edit *e);

#endif

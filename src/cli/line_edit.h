/* line_edit.h - lines from the standard input: with editing and a history that outlives the program
 * if it is a terminal, as they come if not. */
#ifndef DSMOE_CLI_LINE_EDIT_H
#define DSMOE_CLI_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_edit line_edit;

typedef enum line_result {
    LINE_READ,
    LINE_END,         /* of the input: Ctrl-D */
    LINE_INTERRUPTED, /* cli_interrupted() is true */
    LINE_FAILED,      /* out of memory, or the input cannot be read */
} line_result;

/* The prompt is shown on terminals only; of those lines a history is kept, if it is wanted and there is a
 * place for it. NULL if there is no memory. */
line_edit *line_edit_open(const char *prompt, bool keeps_history);
/* A line without its newline, ended by a NUL; it is gone with the next call. */
line_result line_edit_read(line_edit *e, const char **line, size_t *length);
/* Keeps the history for the next time, if that is possible. */
void line_edit_close(line_edit *e);

#endif

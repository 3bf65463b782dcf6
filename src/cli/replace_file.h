/* replace_file.h - a file that appears under its name only when it is whole. */
#ifndef DSMOE_CLI_REPLACE_FILE_H
#define DSMOE_CLI_REPLACE_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct replace_file {
    const char *path;
    char *temporary; /* where it is written: beside `path` */
    FILE *file;
} replace_file;

/* A file that is there gives way; cli/output.h tells whether it may. These print their message,
 * which names the path, and return the exit code, or CLI_OK. */
int replace_file_begin(const char *command, const char *path, replace_file *out);
/* Puts the file in its place if all of it could be written. Ends `out` in any case. */
int replace_file_end(const char *command, replace_file *out);

#endif

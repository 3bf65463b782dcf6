/* output.h - what a command may overwrite, checked before its work. The rule is the library's
 * (dsmoe_output_check), and docs/files.md explains it. These functions print its message and return the exit
 * code, or CLI_OK. */
#ifndef DSMOE_CLI_OUTPUT_H
#define DSMOE_CLI_OUTPUT_H

#include "dsmoe.h"

/* The help of --force in all commands. */
#define OUTPUT_FORCE_HELP "replaces an existing output of the same kind; never an input"

int output_check(const char *command, const dsmoe_output *output);
/* "-" as the file of an option is a wrong call. It would mean standard output, but an output is checked, and
 * put in place when it is complete, so it needs a name. */
int output_check_name(const char *command, const char *option, const char *path);

/* Checks a folder that may hold only the names in `own`. */
int output_check_folder(const char *command, const char *path, const char *const *own, int n_own);
/* The same for a folder that may also contain inputs of the command. */
int output_check_folder_with(const char *command, const char *path, const char *const *inputs,
                             int n_inputs);

/* An input as a file that can be compared: "-" is standard input. */
const char *output_input(const char *path);

#endif

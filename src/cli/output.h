/* output.h - what a command may overwrite, asked before its work. The rule is the library's
 * (dsmoe_output_check) and docs/files.md explains it; these print its message and return the exit
 * code, or CLI_OK. */
#ifndef DSMOE_CLI_OUTPUT_H
#define DSMOE_CLI_OUTPUT_H

#include "dsmoe.h"

/* What --force is in all commands, after the option's name in the help. */
#define OUTPUT_FORCE_HELP "replaces an existing output of the same kind; never an input"

int output_check(const char *command, const dsmoe_output *output);
/* "-" as the file that an option names is a wrong call: it is meant for standard output, and what is
 * checked and put in place when it is whole has a name. */
int output_check_name(const char *command, const char *option, const char *path);

/* A folder that holds nothing but `own` names. */
int output_check_folder(const char *command, const char *path, const char *const *own, int n_own);
/* The same of a folder in which some of the command's inputs may lie. */
int output_check_folder_with(const char *command, const char *path, const char *const *inputs,
                             int n_inputs);

/* An input as a file that can be compared: "-" is standard input. */
const char *output_input(const char *path);

#endif

/* cli.h - what the commands share: exit codes, argument parsing, numbers and strings on output.
 * Data goes to stdout, messages to stderr. */
#ifndef DSMOE_CLI_H
#define DSMOE_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dsmoe.h"

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* Each command gets its own name in argv[0] and returns an exit code. */
int command_bench(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_verify(int argc, char **argv);

/* Both print "dsmoe COMMAND: message" to stderr; usage also points to --help. They return the exit
 * code so that a command can end with: return cli_usage("plan", "…"); */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_failure(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A whole decimal number within [min, max]; false otherwise. */
bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *value);

/* "1,64,512" into at most `capacity` numbers within [min, max]; the count, or -1. "" gives 0. */
int cli_parse_list(const char *text, int64_t min, int64_t max, int64_t *values, int capacity);

/* "4426165368" as "4,426,165,368". `out` holds at least 4/3 of the digits plus 2. */
void cli_group_digits(const char *digits, char *out);

/* A JSON string with quotes and escapes. */
void cli_print_json_string(FILE *file, const char *text);

/* Whether `file` is a terminal that wants colour (NO_COLOR is honoured). */
bool cli_wants_colour(FILE *file);

/* After the last line of output: a full disk or a closed pipe is a failure, not silence. */
int cli_finish(const char *command, int exit_code);

#endif

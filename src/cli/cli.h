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
int command_chat(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_init(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_tokenize(int argc, char **argv);
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

/* Bytes in decimal units, "1.2 GB"; returns `out`. */
enum { CLI_BYTES = 24 };
const char *cli_format_bytes(double bytes, char out[CLI_BYTES]);

/* Bytes of the UTF-8 character at the start of text that is not empty; 0 if none begins there. */
size_t cli_utf8_character(const char *text, size_t length);

/* A JSON string with quotes and escapes. A byte that belongs to no UTF-8 character becomes U+FFFD. */
void cli_print_json_string(FILE *file, const char *text);
/* The same for text of a known length, which may hold NULs. */
void cli_print_json_text(FILE *file, const char *text, size_t length);

/* Whether `file` is a terminal that wants colour (NO_COLOR is honoured). */
bool cli_wants_colour(FILE *file);

/* The whole of a file, or of stdin for "-", ended by a NUL that *length does not count; to be freed.
 * On failure the message is printed and the exit code returned, else CLI_OK. */
int cli_read_file(const char *command, const char *path, char **text, size_t *length);

/* From here on Ctrl-C and SIGTERM do not end the program but make cli_interrupted true; a second one
 * ends it at once. cli_clear_interrupt forgets the first. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);
void cli_clear_interrupt(void);
/* Whether it was SIGTERM, which an interactive command obeys where Ctrl-C only stops its answer. */
bool cli_terminated(void);

/* Seconds on a clock that only goes forward, and the most memory this process has had, in bytes. */
double cli_seconds(void);
int64_t cli_peak_rss(void);

/* Shows what has been printed so far; false if that is impossible, which cli_finish then reports. */
bool cli_flush(void);

/* After the last line of output: a full disk or a closed pipe is a failure, not silence. */
int cli_finish(const char *command, int exit_code);

#endif

/* cli.h - what the commands share: exit codes, argument parsing, numbers and strings on output.
 * Data goes to stdout, messages to stderr. */
#ifndef DSMOE_CLI_H
#define DSMOE_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dsmoe.h"

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* The largest values that the library takes. */
enum { CLI_MAX_THREADS = 1024, CLI_MAX_BATCH = 65536 };

/* Each command gets its own name in argv[0] and returns an exit code. */
int command_ablate(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_imatrix(int argc, char **argv);
int command_init(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_report(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_tokenizer(int argc, char **argv);
int command_train(int argc, char **argv);
int command_verify(int argc, char **argv);

/* Both print "dsmoe COMMAND: message" to stderr, as one line, and return the exit code, so that a command can
 * end with: return cli_usage("plan", "…"). `command` is NULL if it is not known. cli_usage is for wrong calls
 * and points to --help: an option is missing, contradicts another, or has a value that does not exist or does
 * not fit the model. cli_failure is for problems with the content of files (and the texts and ids of -p), the
 * disk, or memory. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_failure(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line of the same form that is not an error: a warning, or something that the user should know. */
void cli_note(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints an error of the library, after `about`, such as an option or a model, if that is not NULL. An
 * impossible argument is wrong usage, anything else is a failure. */
int cli_error(const char *command, const char *about, const dsmoe_error *error);

/* The part of --help for commands with conversations. */
#define CLI_CHAT_FORM_HELP                                                                         \
    "      --chat-form NAME     the chat form: deepseek, deepseek-v3, deepseek-v3-0324,\n"         \
    "                           moonlight, chatml, alpaca or none (default: what the model's\n"    \
    "                           chat_template is recognised as; deepseek if it has none)\n"

/* The message of a command that needs a model, if -m is missing. */
#define CLI_NO_MODEL                                                                               \
    "no model: name its folder, a training run or a .gguf file with -m PATH; dsmoe demo makes one"

/* Prints a line if some of the data is left out or changed. */
void cli_warn_of_files(const char *command, const dsmoe_data_files *files);
/* Warns on stderr if n_ctx is more than the model was made for. */
void cli_warn_of_context(const char *command, const dsmoe_config *config, int64_t n_ctx);

/* A whole decimal number within [min, max]; false otherwise. */
bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *value);

/* The same for a finite decimal number: "2", "-0.5", "1e-3". */
bool cli_parse_number(const char *text, double min, double max, double *value);

/* "1,64,512" into at most `capacity` numbers within [min, max]; the count, or -1. "" gives 0. */
int cli_parse_list(const char *text, int64_t min, int64_t max, int64_t *values, int capacity);

/* "4426165368" as "4,426,165,368". `out` holds at least 4/3 of the digits plus 2. */
void cli_group_digits(const char *digits, char *out);

/* Bytes in decimal units, "1.2 GB"; returns `out`. */
enum { CLI_BYTES = 24 };
const char *cli_format_bytes(double bytes, char out[CLI_BYTES]);

/* Prints a word for a shell: in quotes if it has more than letters, digits and the like. */
void cli_print_word(FILE *file, const char *word);

/* Prints text of a model or a file to stdout. A terminal gets no control characters except line ends and
 * tabs, because others could set its clipboard or hide text. False if it cannot be written. */
bool cli_print_text(const char *text, size_t length);

/* Whether `file` is a terminal that knows control sequences (TERM is not "dumb"); whether it also wants
 * colour (NO_COLOR is honoured); and its columns, or 80 if it is not a terminal. */
bool cli_steers_terminal(FILE *file);
bool cli_wants_colour(FILE *file);
int cli_terminal_width(FILE *file);

/* An input as messages name it: "standard input" for "-". */
const char *cli_input_name(const char *path);

/* Reads a whole file, or stdin for "-". The text ends with a NUL that *length does not count; free it. On
 * failure the message is printed and the exit code returned, otherwise CLI_OK. */
int cli_read_file(const char *command, const char *path, char **text, size_t *length);

/* After this call Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a closed terminal or a dropped connection; not under
 * nohup) do not end the program but make cli_interrupted true. If the program still runs more than a second
 * later, another of the first three ends it immediately. cli_clear_interrupt forgets the signal. */
void cli_catch_interrupt(void);
/* The same if the reader of the output or the messages is gone; for work that has something to save. */
void cli_catch_broken_pipe(void);
/* Sets a line to print immediately on Ctrl-C, for work that takes a while to end. On a terminal it replaces a
 * line that is being redrawn. */
void cli_answer_interrupt(const char *text);
/* Installs a handler that does not make reads and writes fail. */
void cli_handle_signal(int signal_number, void (*handler)(int));
/* The same for SIGHUP, unless the command was started with it ignored, as nohup does. */
void cli_handle_hangup(void (*handler)(int));
bool cli_interrupted(void);
bool cli_stop(void *unused); /* the same, as a callback of the library */
void cli_clear_interrupt(void);
/* Whether a signal other than Ctrl-C came. An interactive command then ends, but Ctrl-C only stops an
 * answer. */
bool cli_terminated(void);

/* A model is a mapped file. If the file is cut short while in use, all the program can do is say so and
 * end. */
void cli_catch_lost_file(void);

/* Seconds on a clock that only goes forward; and the peak memory of this process, in bytes. */
double cli_seconds(void);
int64_t cli_peak_rss(void);

/* Flushes stdout; false if that fails, which cli_finish then reports. */
bool cli_flush(void);

/* Called after the last line of output, to report a full disk or a closed pipe as a failure. Returns the exit
 * code. */
int cli_finish(const char *command, int exit_code);

#endif

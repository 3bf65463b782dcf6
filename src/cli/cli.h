/* cli.h - what the commands share: exit codes, argument parsing, numbers and strings on output.
 * Data goes to stdout, messages to stderr. */
#ifndef DSMOE_CLI_H
#define DSMOE_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dsmoe.h"

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* What the library takes at most. */
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

/* Both print "dsmoe COMMAND: message" to stderr, as one line, and return the exit code, so that a command
 * can end with: return cli_usage("plan", "…"); the command is NULL where it is not known.
 * A call is wrong, and points to --help, if an option is missing, contradicts another, or has a value that
 * does not exist or does not fit the model. What files hold (the texts and ids of -p as well), the disk,
 * or memory are to blame for is a failure. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_failure(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of the same form that is neither: a warning, or what the user should know. */
void cli_note(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An error of the library, after `about`, say the option or the model that it is about, if that is not NULL:
 * wrong usage if the library was asked for what is impossible, otherwise a failure. */
int cli_error(const char *command, const char *about, const dsmoe_error *error);

/* The part of --help of commands in which models converse. */
#define CLI_CHAT_FORM_HELP                                                                             \
    "      --chat-form NAME     the form of conversations: deepseek, deepseek-v3, deepseek-v3-0324,\n" \
    "                           moonlight, chatml, alpaca or none (default: what the model's\n"        \
    "                           chat_template is recognised as; deepseek if it has none)\n"

/* The message where a command needs a model and -m is missing. */
#define CLI_NO_MODEL                                                                               \
    "no model: name its folder, a training run or a .gguf file with -m PATH; dsmoe demo makes one"

/* A line if not all of the data is learnt from, or not as it is. */
void cli_warn_of_files(const char *command, const dsmoe_data_files *files);
/* Warns on stderr if the model was not made for so many tokens. */
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

/* A word as a shell takes it: in quotes if it has more than letters, digits and the like. */
void cli_print_word(FILE *file, const char *word);

/* Text of a model or a file to stdout. A terminal gets no control characters but line ends and tabs:
 * they could set its clipboard or hide what is written. False if it cannot be written. */
bool cli_print_text(const char *text, size_t length);

/* Whether `file` is a terminal that knows control sequences (TERM is not "dumb"), one that wants
 * colour as well (NO_COLOR is honoured), and its columns: 80 if it is none. */
bool cli_steers_terminal(FILE *file);
bool cli_wants_colour(FILE *file);
int cli_terminal_width(FILE *file);

/* An input as messages name it: "standard input" for "-". */
const char *cli_input_name(const char *path);

/* The whole of a file, or of stdin for "-", ended by a NUL that *length does not count; to be freed.
 * On failure the message is printed and the exit code returned, otherwise CLI_OK. */
int cli_read_file(const char *command, const char *path, char **text, size_t *length);

/* From here on Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a terminal that was closed, a connection that dropped; not
 * under nohup) do not end the program but make cli_interrupted true; if it still works on a second later,
 * another one of the first three ends it at once. cli_clear_interrupt forgets the first. */
void cli_catch_interrupt(void);
/* The same if the reader of the output or the messages is gone: for work with something to save. */
void cli_catch_broken_pipe(void);
/* What Ctrl-C is answered with at once, where it takes a while until work ends: a line, which on a
 * terminal takes the place of one that is being redrawn. */
void cli_answer_interrupt(const char *text);
/* A handler that does not make reading and writing fail. */
void cli_handle_signal(int signal_number, void (*handler)(int));
/* The same for a lost terminal, unless the command was started with it ignored, as nohup does. */
void cli_handle_hangup(void (*handler)(int));
bool cli_interrupted(void);
bool cli_stop(void *unused); /* the same, for the library to ask */
void cli_clear_interrupt(void);
/* Whether it was more than Ctrl-C: an interactive command ends then, where Ctrl-C only stops its answer. */
bool cli_terminated(void);

/* A model is a mapped file: if that is cut short while in use there is nothing left to do but to say
 * so and to end. */
void cli_catch_lost_file(void);

/* Seconds on a clock that only goes forward, and the most memory this process has had, in bytes. */
double cli_seconds(void);
int64_t cli_peak_rss(void);

/* Shows what has been printed so far; false if that is impossible, which cli_finish then reports. */
bool cli_flush(void);

/* After the last line of output: a full disk or a closed pipe is a failure, not silence. */
int cli_finish(const char *command, int exit_code);

#endif

/* common.c - what the commands share. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

/* Prints "dsmoe COMMAND: message" on one line. Names of files and words of the user may contain anything, so
 * bytes that are not UTF-8 and control characters become '?'. */
static void print_message(const char *command, const char *format, va_list arguments)
{
    char message[4096];
    uint32_t code = 0;
    vsnprintf(message, sizeof message, format, arguments);
    fprintf(stderr, "dsmoe%s%s: ", command ? " " : "", command ? command : "");
    for (size_t i = 0, length = strlen(message), size; i < length; i += size) {
        size = utf8_decode(message + i, length - i, &code);
        bool shown = size > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f);
        if (size == 0) size = 1;
        fwrite(shown ? message + i : "?", 1, shown ? size : 1, stderr);
    }
    fputc('\n', stderr);
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message(command, format, arguments);
    va_end(arguments);
    fprintf(stderr, "try: dsmoe %s%s--help\n", command ? command : "", command ? " " : "");
    return CLI_USAGE;
}

int cli_failure(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message(command, format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}

void cli_note(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message(command, format, arguments);
    va_end(arguments);
}

int cli_error(const char *command, const char *about, const dsmoe_error *error)
{
    bool is_usage = error->status == DSMOE_ERROR_ARGUMENT;
    return (is_usage ? cli_usage : cli_failure)(command, "%s%s%s", about ? about : "",
                                                about ? ": " : "", error->message);
}

void cli_warn_of_files(const char *command, const dsmoe_data_files *files)
{
    char line[2 * DSMOE_PATH + 512];
    dsmoe_data_files_describe(files, line, sizeof line);
    if (*line) cli_note(command, "data: %s", line);
}

void cli_warn_of_context(const char *command, const dsmoe_config *config, int64_t n_ctx)
{
    if (n_ctx > config->max_position_embeddings)
        cli_note(command,
                 "warning: the model was made for contexts of %" PRId64 " tokens, not of %" PRId64,
                 config->max_position_embeddings, n_ctx);
}

/* Parses the number at the start of `text`; *end is set to what follows it. */
static bool parse_number(const char *text, const char **end, int64_t min, int64_t max,
                         int64_t *value)
{
    if (*text < '0' || *text > '9') {
        if (*text != '-' || text[1] < '0' || text[1] > '9') return false;
    }
    char *stop;
    errno = 0;
    long long number = strtoll(text, &stop, 10);
    if (errno || number < min || number > max) return false;
    *end = stop;
    *value = number;
    return true;
}

bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    const char *end;
    return parse_number(text, &end, min, max, value) && *end == '\0';
}

int cli_parse_list(const char *text, int64_t min, int64_t max, int64_t *values, int capacity)
{
    if (*text == '\0') return 0;
    for (int count = 0; count < capacity; text++) {
        if (!parse_number(text, &text, min, max, &values[count++])) return -1;
        if (*text == '\0') return count;
        if (*text != ',') return -1;
    }
    return -1;
}

bool cli_parse_number(const char *text, double min, double max, double *value)
{
    const char *digits = text + (*text == '-');
    /* strtod would also take blanks, hexadecimals, "inf" and "nan" */
    if (*digits == '\0' || strspn(digits, "0123456789.eE+-") != strlen(digits)) return false;
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || errno || !isfinite(number)) return false;
    if (number < min || number > max) return false;
    *value = number;
    return true;
}

void cli_group_digits(const char *digits, char *out)
{
    size_t length = strlen(digits);
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
}

const char *cli_format_bytes(double bytes, char out[CLI_BYTES])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    size_t prefix = 0;
    for (; bytes >= 999.5 && prefix + 1 < sizeof prefixes / sizeof *prefixes; prefix++)
        bytes /= 1000;
    snprintf(out, CLI_BYTES, "%.*f %sB", prefix && bytes < 99.95 ? 1 : 0, bytes, prefixes[prefix]);
    return out;
}

bool cli_steers_terminal(FILE *file)
{
    const char *terminal = getenv("TERM");
    return isatty(fileno(file)) && !(terminal && !strcmp(terminal, "dumb"));
}

bool cli_wants_colour(FILE *file)
{
    const char *no_colour = getenv("NO_COLOR");
    return cli_steers_terminal(file) && !(no_colour && *no_colour);
}

int cli_terminal_width(FILE *file)
{
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

void cli_print_word(FILE *file, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, file);
        return;
    }
    fputc('\'', file);
    for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, file);
    fputc('\'', file);
}

bool cli_print_text(const char *text, size_t length)
{
    if (!isatty(STDOUT_FILENO)) return fwrite(text, 1, length, stdout) == length;
    uint32_t code = 0;
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_decode(text + i, length - i, &code);
        bool steers = size > 0 && (code < 0x20 || (code >= 0x7f && code <= 0x9f)) && code != '\n' &&
                      code != '\t' && code != '\r';
        if (size == 0) size = 1;
        if (steers)
            fputs("\xef\xbf\xbd", stdout); /* U+FFFD */
        else
            fwrite(text + i, 1, size, stdout);
    }
    return !ferror(stdout);
}

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t cli_peak_rss(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (int64_t)usage.ru_maxrss * 1024; /* Linux counts kilobytes */
}

/* Why the output could not be written; kept here because stdio forgets it. */
static int output_problem;

bool cli_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    if (!output_problem) output_problem = errno;
    return false;
}

int cli_finish(const char *command, int exit_code)
{
    if (cli_flush()) return exit_code;
    return cli_failure(command, "cannot write the output: %s", strerror(output_problem));
}

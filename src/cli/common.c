/* common.c - what the commands share. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "dsmoe %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\ntry: dsmoe %s --help\n", command);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_failure(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "dsmoe %s: ", command);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return CLI_FAILURE;
}

/* The number at the start of `text`; *end is set behind it. */
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

void cli_group_digits(const char *digits, char *out)
{
    size_t length = strlen(digits);
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
}

void cli_print_json_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

bool cli_wants_colour(FILE *file)
{
    const char *no_colour = getenv("NO_COLOR");
    return isatty(fileno(file)) && !(no_colour && *no_colour);
}

int cli_finish(const char *command, int exit_code)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed) return exit_code;
    return cli_failure(command, "cannot write the output: %s", strerror(errno));
}

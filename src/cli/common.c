/* common.c - what the commands share. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
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

const char *cli_format_bytes(double bytes, char out[CLI_BYTES])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    size_t prefix = 0;
    for (; bytes >= 999.5 && prefix + 1 < sizeof prefixes / sizeof *prefixes; prefix++)
        bytes /= 1000;
    snprintf(out, CLI_BYTES, "%.*f %sB", prefix && bytes < 99.95 ? 1 : 0, bytes, prefixes[prefix]);
    return out;
}

size_t cli_utf8_character(const char *bytes, size_t length)
{
    const unsigned char *text = (const unsigned char *)bytes;
    /* The second byte decides whether a form is overlong, a surrogate or beyond Unicode. */
    unsigned char first = text[0], low = 0x80, high = 0xbf;
    if (first < 0x80) return 1;
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || size > length) return 0;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    if (text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < size; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return size;
}

static void print_json_escape(FILE *file, unsigned char c)
{
    switch (c) {
    case '"': fputs("\\\"", file); break;
    case '\\': fputs("\\\\", file); break;
    case '\n': fputs("\\n", file); break;
    case '\r': fputs("\\r", file); break;
    case '\t': fputs("\\t", file); break;
    default: fprintf(file, "\\u%04x", c);
    }
}

void cli_print_json_text(FILE *file, const char *text, size_t length)
{
    fputc('"', file);
    for (size_t i = 0, size; i < length; i += size) {
        unsigned char c = (unsigned char)text[i];
        size = cli_utf8_character(text + i, length - i);
        if (size == 0) {
            fputs("\xef\xbf\xbd", file); /* U+FFFD */
            size = 1;
        } else if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') {
            print_json_escape(file, c);
        } else {
            fwrite(text + i, 1, size, file);
        }
    }
    fputc('"', file);
}

void cli_print_json_string(FILE *file, const char *text)
{
    cli_print_json_text(file, text, strlen(text));
}

bool cli_wants_colour(FILE *file)
{
    const char *no_colour = getenv("NO_COLOR");
    return isatty(fileno(file)) && !(no_colour && *no_colour);
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

/* Why the output could not be written, as stdio forgets it. */
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

/* progress.c - a bar with rate and time left on stderr. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const double first_after = 0.5, redraw_after = 0.1; /* seconds */

enum { BAR_WIDTH = 24, LINE_MAX_WIDTH = 160 };

/* Columns left free: a line that wraps cannot be cleared, and the terminal shows ^C after the line. */
static const int margin = 3;

enum { BYTES_WORTH_WAITING = 16 * 1024 * 1024 }; /* a few seconds of tokenizing */

/* "1.2 GB" or "3400 tokens". */
static void format_amount(double amount, const char *unit, char out[CLI_BYTES])
{
    if (!strcmp(unit, "bytes"))
        cli_format_bytes(amount, out);
    else
        snprintf(out, CLI_BYTES, "%.*f %s", amount < 10 ? 1 : 0, amount, unit);
}

/* "42 s", "3 min 05 s", "2 h 10 min". */
static void format_duration(double seconds, char *out, size_t size)
{
    if (seconds < 90)
        snprintf(out, size, "%.0f s", seconds);
    else if (seconds < 5400)
        snprintf(out, size, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else if (seconds < 360000)
        snprintf(out, size, "%d h %02d min", (int)seconds / 3600, (int)seconds / 60 % 60);
    else
        snprintf(out, size, "%.0f h", seconds / 3600);
}

static void print_line(const char *line)
{
    int width = cli_terminal_width(stderr) - margin;
    fprintf(stderr, "\r%.*s\033[K", width > 0 ? width : 0, line);
    fflush(stderr);
}

static void draw(const progress *p, double now, double done, double total)
{
    double share = total > 0 ? done / total : 0;
    if (share > 1) share = 1;
    double rate = done / (now - p->start);
    char speed[CLI_BYTES], left[40] = "", numbers[120], bar[BAR_WIDTH + 4] = "";
    format_amount(rate, p->unit, speed);
    if (rate > 0 && total >= done) format_duration((total - done) / rate, left, sizeof left);
    snprintf(numbers, sizeof numbers, " %3.0f %%  %s/s%s%s%s", 100 * share, speed,
             *left ? "  " : "", left, *left ? " left" : "");
    /* On a narrow terminal the bar is left out first. */
    int room = cli_terminal_width(stderr) - margin - (int)strlen(p->label) - (int)strlen(numbers);
    int width = room - 3 < BAR_WIDTH ? room - 3 : BAR_WIDTH;
    if (width >= 4) {
        memset(bar, '.', sizeof bar);
        memcpy(bar, " [", 2);
        memset(bar + 2, '#', (size_t)(share * width));
        memcpy(bar + 2 + width, "]", 2);
    }
    char line[LINE_MAX_WIDTH];
    snprintf(line, sizeof line, "%s%s%s", p->label, bar, numbers);
    print_line(line);
}

progress progress_start(const char *label, const char *unit)
{
    double now = cli_seconds();
    return (progress){label, unit, now, now, cli_steers_terminal(stderr), false};
}

progress progress_wait(const char *label, size_t n_bytes)
{
    progress p = progress_start(label, "bytes");
    char line[LINE_MAX_WIDTH], amount[CLI_BYTES];
    if (!p.shown || n_bytes < BYTES_WORTH_WAITING) return p;
    snprintf(line, sizeof line, "%s %s ...", label, cli_format_bytes((double)n_bytes, amount));
    print_line(line);
    p.drawn = true;
    return p;
}

void progress_update(progress *p, double done, double total)
{
    if (!p->shown) return;
    double now = cli_seconds();
    if (now - p->start < first_after || now - p->last < redraw_after) return;
    draw(p, now, done, total);
    p->last = now;
    p->drawn = true;
}

void progress_finish(progress *p)
{
    if (!p->drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->drawn = false;
}

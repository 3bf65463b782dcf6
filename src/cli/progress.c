/* progress.c - a bar with rate and time left on stderr. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

static const double first_after = 0.5, redraw_after = 0.1; /* seconds */

enum { BAR_WIDTH = 24, LINE_MAX_WIDTH = 160 };

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col < LINE_MAX_WIDTH ? size.ws_col : LINE_MAX_WIDTH;
}

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

static void draw(const progress *p, double now, double done, double total)
{
    double share = total > 0 ? done / total : 0;
    if (share > 1) share = 1;
    char bar[BAR_WIDTH + 1];
    int filled = (int)(share * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = '\0';

    double rate = done / (now - p->start);
    char speed[CLI_BYTES], left[40] = "";
    format_amount(rate, p->unit, speed);
    if (rate > 0 && total >= done) format_duration((total - done) / rate, left, sizeof left);
    char line[LINE_MAX_WIDTH];
    snprintf(line, sizeof line, "%s [%s] %3.0f %%  %s/s%s%s%s", p->label, bar, 100 * share, speed,
             *left ? "  " : "", left, *left ? " left" : "");
    /* A line that wraps cannot be cleared, so it is cut one column short of the edge. */
    fprintf(stderr, "\r%.*s\033[K", terminal_width() - 1, line);
    fflush(stderr);
}

progress progress_start(const char *label, const char *unit)
{
    double now = cli_seconds();
    return (progress){label, unit, now, now, isatty(STDERR_FILENO) == 1, false};
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

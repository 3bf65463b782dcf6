/* test_train_view.c - a training run on a terminal: what the screen shows in the end. The terminal is a
 * pseudo terminal, and its screen is simulated by a few lines of C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/train_view.h"

/* ---- a terminal ------------------------------------------------------------------------------ */

enum { MAX_LINES = 64, MAX_COLUMNS = 160 };

static struct {
    int master, kept_stderr, columns;
    char lines[MAX_LINES][MAX_COLUMNS + 1];
    int line, column; /* the cursor */
} screen;

static void open_screen(int columns)
{
    memset(&screen, 0, sizeof screen);
    screen.columns = columns;
    screen.master = posix_openpt(O_RDWR | O_NOCTTY);
    if (screen.master < 0 || grantpt(screen.master) != 0 || unlockpt(screen.master) != 0) skip();
    int terminal = open(ptsname(screen.master), O_RDWR | O_NOCTTY);
    if (terminal < 0) skip();
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(screen.master, TIOCSWINSZ, &size), 0);
    assert_int_equal(fcntl(screen.master, F_SETFL, O_NONBLOCK), 0);
    fflush(stderr);
    screen.kept_stderr = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    setenv("TERM", "xterm", 1);
}

static void put_character(char c)
{
    if (c == '\r') {
        screen.column = 0;
        return;
    }
    if (c == '\n' || screen.column == screen.columns) { /* in the second case the line wraps */
        screen.line++;
        if (c != '\n') screen.column = 0;
    }
    assert_true(screen.line < MAX_LINES);
    if (c != '\n') screen.lines[screen.line][screen.column++] = c;
}

/* Clears the line from the cursor to its end. */
static void clear_rest(void)
{
    char *line = screen.lines[screen.line];
    memset(line + screen.column, 0, (size_t)(MAX_COLUMNS - screen.column));
}

static void refresh_screen(void)
{
    static char bytes[1 << 16];
    ssize_t n, length = 0;
    fflush(stderr);
    while ((n = read(screen.master, bytes + length, sizeof bytes - (size_t)length)) > 0)
        length += n;
    for (ssize_t i = 0; i < length; i++) {
        if (!strncmp(bytes + i, "\033[K", 3)) {
            clear_rest();
            i += 2;
        } else {
            put_character(bytes[i]);
        }
    }
}

static void close_screen(void)
{
    refresh_screen();
    dup2(screen.kept_stderr, STDERR_FILENO);
    close(screen.kept_stderr);
    close(screen.master);
}

static int find_line(const char *words)
{
    for (int i = 0; i <= screen.line; i++)
        if (strstr(screen.lines[i], words)) return i;
    return -1;
}

static void assert_in_order(const char *const *words, int n)
{
    for (int i = 0, last = -1; i < n; i++) {
        int line = find_line(words[i]);
        if (line <= last) fail_msg("'%s' is on line %d, after %d", words[i], line, last);
        last = line;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static dsmoe_run_event step_event(int64_t step)
{
    return (dsmoe_run_event){.kind = DSMOE_RUN_STEP,
                             .step = step,
                             .n_steps = 30,
                             .loss = 4.0 - 0.01 * (double)step,
                             .lr = 1e-3,
                             .grad_norm = 1.5,
                             .imbalance = 1.25,
                             .tokens_per_s = 12345,
                             .seconds_left = 61};
}

static void show(train_view *v, dsmoe_run_event_kind kind, int64_t step)
{
    dsmoe_run_event e = step_event(step);
    e.kind = kind;
    e.held_out_loss = e.best_loss = 3.5;
    e.text = kind == DSMOE_RUN_SAMPLE ? "two\nlines" : "a message";
    e.path = "run/checkpoints/step-00000020";
    e.what = "measuring the held-out loss";
    e.done = 1;
    e.total = 2;
    train_view_event(v, &e);
}

static void show_steps(train_view *v, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++) show(v, DSMOE_RUN_STEP, step);
    refresh_screen();
}

static void test_lines_stay(void **state)
{
    (void)state;
    static const int widths[] = {80, 120, 40};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        open_screen(widths[i]);
        const char *form = widths[i] == 120 ? "step %d/30  loss" : "%d/30 loss";
        char one[32], ten[32], eleven[32], twenty[32], last[32];
        snprintf(one, sizeof one, form, 1);
        snprintf(ten, sizeof ten, form, 10);
        snprintf(eleven, sizeof eleven, form, 11);
        snprintf(twenty, sizeof twenty, form, 20);
        snprintf(last, sizeof last, form, 30);
        train_view v = train_view_start("train", 10, false);
        show_steps(&v, 1, 13);
        assert_in_order((const char *[]){one, ten, eleven}, 3);
        assert_int_equal(find_line(eleven), screen.line); /* the line that is updated */
        assert_true(screen.column < widths[i]);
        show_steps(&v, 14, 20);
        show(&v, DSMOE_RUN_CHECKPOINT, 20);
        show(&v, DSMOE_RUN_PROGRESS, 20);
        show(&v, DSMOE_RUN_EVAL, 20);
        show(&v, DSMOE_RUN_SAMPLE, 20);
        show_steps(&v, 21, 25);
        show(&v, DSMOE_RUN_MESSAGE, 25);
        show_steps(&v, 26, 30);
        train_view_finish(&v);
        close_screen();
        assert_in_order((const char *[]){one, ten, twenty, "step 20: saved", "step 20: held-out",
                                         "step 20: it writes", "    two", "    lines",
                                         "dsmoe train: a message", last},
                        10);
        assert_int_equal(find_line(eleven), -1); /* it was drawn and replaced */
        assert_int_equal(find_line("measuring"), -1);
        assert_string_equal(screen.lines[screen.line], ""); /* an empty line for what follows */
        assert_int_equal(find_line("21/30"), -1);
    }
}

/* Ctrl-C while a line is drawn; the terminal echoes it at the line's end. */
static void test_interrupt(void **state)
{
    (void)state;
    open_screen(80);
    train_view v = train_view_start("train", 10, false);
    show_steps(&v, 1, 5);
    cli_catch_interrupt();
    cli_answer_interrupt("stopping after this step");
    assert_int_equal(write(STDERR_FILENO, "^C", 2), 2);
    raise(SIGINT);
    assert_true(cli_interrupted());
    cli_clear_interrupt();
    show_steps(&v, 6, 6);
    show(&v, DSMOE_RUN_CHECKPOINT, 6);
    train_view_finish(&v);
    close_screen();
    assert_int_equal(find_line("^C"), -1);
    int line = find_line("stopping after this step");
    assert_true(line > 0 && !strncmp(screen.lines[line], "stopping", 8));
    assert_int_equal(find_line("step 6: saved"), line + 1);
}

/* Without a terminal there are only complete lines. */
static void test_no_terminal(void **state)
{
    (void)state;
    FILE *copy = tmpfile();
    assert_non_null(copy);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(copy), STDERR_FILENO);
    train_view v = train_view_start("train", 10, false);
    for (int64_t step = 1; step <= 30; step++) show(&v, DSMOE_RUN_STEP, step);
    cli_answer_interrupt("stopping after this step");
    raise(SIGINT);
    train_view_finish(&v);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    char text[4096];
    rewind(copy);
    text[fread(text, 1, sizeof text - 1, copy)] = '\0';
    fclose(copy);
    int n_lines = 0;
    for (const char *at = text; *at; at++) n_lines += *at == '\n';
    assert_int_equal(n_lines, 5); /* 1, 10, 20, 30, stopping */
    assert_null(strpbrk(text, "\033\r"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_stay),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_no_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

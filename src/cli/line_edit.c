/* line_edit.c - lines from a terminal through libedit, which only this file uses, or from a pipe. Bytes are
 * read here in both cases, so that an interrupt is noticed while waiting for them. */
#include "cli/line_edit.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/cli.h"

enum { HISTORY_SIZE = 1000, WAIT_MS = 200 };

struct line_edit {
    EditLine *editor; /* NULL: not a terminal */
    History *history;
    FILE *screen;
    char *history_path; /* NULL: none is kept */
    char prompt[64];
    char buffer[4096]; /* bytes [at, end) have been read but not used */
    size_t at, end;
    bool interrupted, failed;
    char *line;
    size_t length, capacity;
};

/* ---- the terminal's own signals ------------------------------------------------------------ */

/* libedit would handle them itself, but it passes each signal on to the whole process group. */
static volatile sig_atomic_t resized, resumed;

static void on_signal(int signal_number)
{
    if (signal_number == SIGWINCH)
        resized = 1;
    else
        resumed = 1;
}

static void catch_signals(void)
{
    cli_handle_signal(SIGWINCH, on_signal);
    cli_handle_signal(SIGCONT, on_signal);
}

/* Handles signals that came: after Ctrl-Z and fg the terminal still has the modes of the shell; after a
 * resize the line is drawn again. */
static void obey_signals(line_edit *e)
{
    if (!e->editor || (!resized && !resumed)) return;
    if (resized) {
        /* otherwise libedit would leave a second copy of the line */
        fputs("\r\033[J", e->screen);
        el_resize(e->editor);
    }
    if (resumed) {
        el_set(e->editor, EL_PREP_TERM, 0);
        el_set(e->editor, EL_PREP_TERM, 1);
    }
    resized = resumed = 0;
    el_set(e->editor, EL_REFRESH);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Waits for input: false if it has ended, was interrupted or cannot be read. */
static bool fill_buffer(line_edit *e)
{
    for (;;) {
        if (cli_interrupted()) {
            e->interrupted = true;
            return false;
        }
        obey_signals(e);
        struct pollfd input = {STDIN_FILENO, POLLIN, 0};
        int ready = poll(&input, 1, WAIT_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t n = read(STDIN_FILENO, e->buffer, sizeof e->buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        e->failed = n < 0;
        e->at = 0;
        e->end = n > 0 ? (size_t)n : 0;
        return n > 0;
    }
}

static bool next_byte(line_edit *e, char *byte)
{
    if (e->at == e->end && !fill_buffer(e)) return false;
    *byte = e->buffer[e->at++];
    return true;
}

/* ---- from a terminal ----------------------------------------------------------------------- */

/* Reads one character for the editor; returns 1, or 0 if there is none. */
static int next_character(EditLine *editor, wchar_t *character)
{
    line_edit *e = NULL;
    el_get(editor, EL_CLIENTDATA, &e);
    mbstate_t state;
    memset(&state, 0, sizeof state);
    char byte;
    while (next_byte(e, &byte)) {
        size_t n = mbrtowc(character, &byte, 1, &state);
        if (n == (size_t)-2) continue; /* more bytes belong to it */
        if (n == (size_t)-1) *character = 0xfffd;
        return 1;
    }
    return 0;
}

static char *show_prompt(EditLine *editor)
{
    line_edit *e = NULL;
    el_get(editor, EL_CLIENTDATA, &e);
    return e->prompt;
}

static line_result read_edited(line_edit *e, const char **line, size_t *length)
{
    int count = 0;
    *line = el_gets(e->editor, &count);
    if (e->interrupted) return LINE_INTERRUPTED;
    if (!*line || count <= 0) return e->failed ? LINE_FAILED : LINE_END;
    HistEvent event;
    *length = strcspn(*line, "\n");
    if (*length > 0) history(e->history, &event, H_ENTER, *line);
    free(e->line);
    e->line = strndup(*line, *length);
    *line = e->line;
    return e->line ? LINE_READ : LINE_FAILED;
}

/* ---- from a pipe --------------------------------------------------------------------------- */

static bool append_byte(line_edit *e, char byte)
{
    if (e->length == e->capacity) {
        size_t capacity = 2 * e->capacity + 256;
        char *larger = realloc(e->line, capacity);
        if (!larger) return false;
        e->line = larger;
        e->capacity = capacity;
    }
    e->line[e->length++] = byte;
    return true;
}

static line_result read_plain(line_edit *e, const char **line, size_t *length)
{
    char byte = '\0';
    e->length = 0;
    while (next_byte(e, &byte) && byte != '\n')
        if (!append_byte(e, byte)) return LINE_FAILED;
    if (e->interrupted) return LINE_INTERRUPTED;
    if (byte != '\n' && e->length == 0) return e->failed ? LINE_FAILED : LINE_END;
    if (e->length > 0 && e->line[e->length - 1] == '\r') e->length--; /* a line end of Windows */
    *length = e->length;
    if (!append_byte(e, '\0')) return LINE_FAILED;
    *line = e->line;
    return LINE_READ;
}

/* ---- the history --------------------------------------------------------------------------- */

/* Makes the missing folders of a path. A failure shows later, when the file is written. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* $XDG_STATE_HOME/dsmoe/history, or the same under ~/.local/state; NULL if there is no such place. */
static char *find_history(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int n = -1;
    if (state && *state == '/')
        n = asprintf(&path, "%s/dsmoe/history", state);
    else if (home && *home == '/')
        n = asprintf(&path, "%s/.local/state/dsmoe/history", home);
    if (n < 0) return NULL;
    make_folders(path);
    return path;
}

/* Only the owner can read the file, from the first byte on. If it cannot be written, there is no history next
 * time. */
static void save_history(const line_edit *e)
{
    HistEvent event;
    mode_t mask = umask(0077);
    history(e->history, &event, H_SAVE, e->history_path);
    umask(mask);
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* Characters beyond ASCII need a locale that has them. */
static void choose_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
}

static bool open_editor(line_edit *e, bool keeps_history)
{
    choose_locale();
    e->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    HistEvent event;
    e->history = history_init();
    e->editor = el_init("dsmoe", stdin, e->screen, stderr);
    if (!e->history || !e->editor) return false;
    history(e->history, &event, H_SETSIZE, HISTORY_SIZE);
    history(e->history, &event, H_SETUNIQUE, 1);
    e->history_path = keeps_history ? find_history() : NULL;
    if (e->history_path) history(e->history, &event, H_LOAD, e->history_path);
    el_set(e->editor, EL_CLIENTDATA, e);
    el_set(e->editor, EL_GETCFN, next_character);
    el_set(e->editor, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(e->editor, EL_EDITOR, "emacs");
    el_set(e->editor, EL_HIST, history, e->history);
    el_source(e->editor, NULL);
    catch_signals();
    return true;
}

line_edit *line_edit_open(const char *prompt, bool keeps_history)
{
    line_edit *e = calloc(1, sizeof *e);
    if (!e || !isatty(STDIN_FILENO)) return e;
    /* \1 surrounds what takes no room on the screen */
    snprintf(e->prompt, sizeof e->prompt,
             cli_wants_colour(stdout) ? "\1\033[1;32m\1%s\1\033[0m\1" : "%s", prompt);
    if (open_editor(e, keeps_history)) return e;
    line_edit_close(e);
    return NULL;
}

line_result line_edit_read(line_edit *e, const char **line, size_t *length)
{
    e->interrupted = e->failed = false;
    return e->editor ? read_edited(e, line, length) : read_plain(e, line, length);
}

void line_edit_close(line_edit *e)
{
    if (!e) return;
    if (e->editor && e->history_path) save_history(e);
    if (e->editor) el_end(e->editor);
    if (e->history) history_end(e->history);
    free(e->history_path);
    free(e->line);
    free(e);
}

/* pty_run.c - runs a command on a pseudo terminal, for tests of what happens only there.
 *
 *   pty_run PROMPT COMMAND...            types the lines of the standard input, each when the terminal shows
 *                                        PROMPT and waits, then Ctrl-D; copies the terminal to the output
 *   pty_run --hang-up TEXT COMMAND...    closes the terminal as soon as it shows TEXT
 *
 * Exits with the code of the command, or 99 if it does not end within 20 seconds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 50, PATIENCE_S = 20, GAVE_UP = 99, SHOWN_MAX = 1 << 20 };

typedef struct terminal {
    int fd; /* our end; -1 when it is closed */
    pid_t child;
    char shown[SHOWN_MAX + 1];
    size_t n_shown, answered; /* prompts up to here have got their line */
} terminal;

static int fail(const char *what)
{
    fprintf(stderr, "pty_run: %s: %s\n", what, strerror(errno));
    return GAVE_UP;
}

static void run_child(const char *name, char **command)
{
    setsid();
    int fd = open(name, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0) _exit(fail(name));
    for (int i = 0; i < 3; i++) dup2(fd, i);
    if (fd > 2) close(fd);
    execv(command[0], command);
    _exit(fail(command[0]));
}

static bool start(terminal *t, char **command)
{
    t->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (t->fd < 0 || grantpt(t->fd) != 0 || unlockpt(t->fd) != 0) return false;
    t->child = fork();
    if (t->child == 0) run_child(ptsname(t->fd), command);
    return t->child > 0;
}

/* Reads what the command writes within a moment; false if nothing came. */
static bool listen(terminal *t)
{
    struct pollfd output = {t->fd, POLLIN, 0};
    if (poll(&output, 1, WAIT_MS) <= 0 || !(output.revents & POLLIN)) return false;
    ssize_t n = read(t->fd, t->shown + t->n_shown, SHOWN_MAX - t->n_shown);
    if (n <= 0) return false;
    fwrite(t->shown + t->n_shown, 1, (size_t)n, stdout);
    t->n_shown += (size_t)n;
    t->shown[t->n_shown] = '\0';
    return true;
}

/* Types the next line when the last thing shown is a prompt without a line. An editor may draw a prompt
 * twice, and a line typed while an answer is printed would not reach it. */
static void type_line(terminal *t, const char *prompt)
{
    char line[4096];
    size_t n = strlen(prompt);
    if (t->n_shown < t->answered + n || strcmp(t->shown + t->n_shown - n, prompt)) return;
    t->answered = t->n_shown;
    bool more = fgets(line, sizeof line, stdin) != NULL;
    line[strcspn(line, "\n")] = more ? '\r' : '\0';
    const char *keys = more ? line : "\004";
    if (write(t->fd, keys, more ? strcspn(line, "\r") + 1 : 1) < 0) fail("write");
}

static void hang_up(terminal *t, const char *text)
{
    if (!strstr(t->shown, text)) return;
    close(t->fd);
    t->fd = -1;
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    static terminal t;
    bool hangs_up = argc > 1 && !strcmp(argv[1], "--hang-up");
    char **words = argv + 1 + hangs_up;
    if (argc < 3 + hangs_up) return GAVE_UP;
    if (!start(&t, words + 1)) return fail("no pseudo terminal");
    time_t begin = time(NULL);
    for (int status; time(NULL) - begin < PATIENCE_S;) {
        bool heard = t.fd >= 0 && listen(&t);
        if (!heard && waitpid(t.child, &status, WNOHANG) == t.child) return exit_code(status);
        if (t.fd < 0) usleep(WAIT_MS * 1000);
        if (t.fd >= 0 && hangs_up) hang_up(&t, words[0]);
        if (t.fd >= 0 && !hangs_up && !heard) type_line(&t, words[0]);
    }
    kill(t.child, SIGKILL);
    fputs("pty_run: the command does not end\n", stderr);
    return GAVE_UP;
}

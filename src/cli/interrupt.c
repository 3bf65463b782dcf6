/* interrupt.c - signals: Ctrl-C, SIGTERM, SIGUSR1 and a lost terminal set a flag that long work checks now
 * and then. A mapped file that is cut short ends the program. */
#include "cli/cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, terminated;
static volatile sig_atomic_t interrupted_at; /* seconds */
static char answer[160];                     /* printed when Ctrl-C comes; "": nothing is */

/* ---- Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP ------------------------------------------------------ */

/* A second Ctrl-C may come from a key that bounces, or from someone who is not sure that the first was
 * noticed. That must not lose the conversation, so another signal ends the program only after a second. A
 * lost terminal never does, because the kernel and the shell may both report it. */
static void on_interrupt(int signal_number)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* The reader of the output may get the signal too and end before the work is saved. */
    signal(SIGPIPE, SIG_IGN);
    bool lost = signal_number == SIGHUP || signal_number == SIGPIPE;
    if (lost || signal_number != SIGINT) terminated = 1;
    if (!interrupted) interrupted_at = (sig_atomic_t)now.tv_sec;
    if (interrupted && !lost && (sig_atomic_t)now.tv_sec - interrupted_at > 1)
        _exit(CLI_INTERRUPTED);
    if (!interrupted && *answer) {
        ssize_t written = write(STDERR_FILENO, answer, strlen(answer));
        (void)written;
    }
    interrupted = 1;
}

void cli_handle_signal(int signal_number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    /* Without SA_RESTART a signal would make stdio lose what it is writing. */
    action.sa_flags = SA_RESTART;
    sigaction(signal_number, &action, NULL);
}

static bool is_ignored(int signal_number)
{
    struct sigaction action;
    return sigaction(signal_number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void cli_handle_hangup(void (*handler)(int))
{
    if (!is_ignored(SIGHUP)) cli_handle_signal(SIGHUP, handler);
}

void cli_catch_interrupt(void)
{
    cli_handle_signal(SIGINT, on_interrupt);
    cli_handle_signal(SIGTERM, on_interrupt);
    cli_handle_signal(SIGUSR1, on_interrupt); /* the one that mpirun passes on */
    cli_handle_hangup(on_interrupt);
}

void cli_catch_broken_pipe(void)
{
    if (!is_ignored(SIGPIPE)) cli_handle_signal(SIGPIPE, on_interrupt);
}

void cli_answer_interrupt(const char *text)
{
    snprintf(answer, sizeof answer, "%s%s\n", cli_steers_terminal(stderr) ? "\r\033[K" : "", text);
}

bool cli_interrupted(void) { return interrupted != 0; }

bool cli_stop(void *unused)
{
    (void)unused;
    return cli_interrupted();
}

void cli_clear_interrupt(void) { interrupted = 0; }

bool cli_terminated(void) { return terminated != 0; }

/* ---- lost files ----------------------------------------------------------------------------- */

/* Several threads may get the signal at the same time. One prints the message and ends all of them. */
static void on_lost_file(int signal_number)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    static const char message[] =
        "\ndsmoe: a file became shorter, or its disk failed, while it was in use\n";
    (void)signal_number;
    while (atomic_flag_test_and_set(&told)) pause();
    /* The line on a terminal may have a text or a bar, so the message then begins with a newline. */
    size_t skipped = isatty(STDERR_FILENO) ? 0 : 1;
    ssize_t written = write(STDERR_FILENO, message + skipped, sizeof message - 1 - skipped);
    (void)written; /* nothing can be done about a failure */
    _exit(CLI_FAILURE);
}

void cli_catch_lost_file(void) { cli_handle_signal(SIGBUS, on_lost_file); }

/* interrupt.c - Ctrl-C and SIGTERM as a question that long work asks now and then. */
#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, terminated;

static void on_signal(int signal_number)
{
    if (signal_number == SIGTERM) terminated = 1;
    if (interrupted) _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    /* Without it a signal would make stdio lose what it is writing. */
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_interrupted(void) { return interrupted != 0; }

void cli_clear_interrupt(void) { interrupted = 0; }

bool cli_terminated(void) { return terminated != 0; }

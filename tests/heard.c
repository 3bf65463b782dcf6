/* heard.c - collects the command's stderr for a while. */
#include "heard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char heard[4096];
static int kept_out, kept_err;
static FILE *listener;

void listen_begin(void)
{
    fflush(stdout);
    kept_out = dup(STDOUT_FILENO);
    kept_err = dup(STDERR_FILENO);
    listener = tmpfile();
    int nowhere = open("/dev/null", O_WRONLY);
    assert_true(listener && nowhere >= 0);
    dup2(nowhere, STDOUT_FILENO);
    dup2(fileno(listener), STDERR_FILENO);
    close(nowhere);
}

void listen_end(void)
{
    fflush(stdout);
    dup2(kept_out, STDOUT_FILENO);
    dup2(kept_err, STDERR_FILENO);
    close(kept_out);
    close(kept_err);
    rewind(listener);
    heard[fread(heard, 1, sizeof heard - 1, listener)] = '\0';
    fclose(listener);
}

void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("no '%s' in: %s", words, text);
}

void assert_lacks(const char *text, const char *words)
{
    if (strstr(text, words)) fail_msg("'%s' in: %s", words, text);
}

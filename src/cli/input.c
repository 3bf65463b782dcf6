/* input.c - whole files and standard input into memory. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_CAPACITY = 64 * 1024 };

/* Makes room for at least one more byte and the NUL; false if there is not enough memory. */
static bool grow(char **text, size_t length, size_t *capacity)
{
    if (length + 1 < *capacity) return true;
    if (*capacity > SIZE_MAX / 2) return false;
    char *larger = realloc(*text, *capacity * 2);
    if (!larger) return false;
    *text = larger;
    *capacity *= 2;
    return true;
}

/* Reads to the end; returns 0 or the errno of the failure. The caller frees *text in both cases. */
static int read_all(int fd, char **text, size_t *length)
{
    size_t capacity = FIRST_CAPACITY;
    struct stat info;
    /* Two bytes more than the file has: for the NUL, and for the read that finds the end. */
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        capacity = (size_t)info.st_size + 2;
    *length = 0;
    *text = malloc(capacity);
    if (!*text) return ENOMEM;
    for (;;) {
        if (!grow(text, *length, &capacity)) return ENOMEM;
        ssize_t n = read(fd, *text + *length, capacity - 1 - *length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) break;
        *length += (size_t)n;
    }
    (*text)[*length] = '\0';
    return 0;
}

const char *cli_input_name(const char *path) { return strcmp(path, "-") ? path : "standard input"; }

int cli_read_file(const char *command, const char *path, char **text, size_t *length)
{
    bool is_stdin = !strcmp(path, "-");
    *text = NULL;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int problem = fd < 0 ? errno : read_all(fd, text, length);
    if (fd >= 0 && !is_stdin) close(fd);
    if (problem == 0) return CLI_OK;
    free(*text);
    *text = NULL;
    return cli_failure(command, "%s: cannot %s: %s", cli_input_name(path), fd < 0 ? "open" : "read",
                       strerror(problem));
}

/* gguf_magic.c - telling a GGUF file from others by its first bytes, since suffixes vary. */
#include "formats/gguf_magic.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool gguf_magic_at(const char *path)
{
    char magic[4] = {0};
    /* Without O_NONBLOCK a FIFO would block here until another process writes to it. */
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return false;
    ssize_t n = read(descriptor, magic, sizeof magic);
    close(descriptor);
    return n == (ssize_t)sizeof magic && !memcmp(magic, "GGUF", sizeof magic);
}

/* gguf_magic.h - telling a GGUF file from others. */
#ifndef DSMOE_FORMATS_GGUF_MAGIC_H
#define DSMOE_FORMATS_GGUF_MAGIC_H

#include <stdbool.h>

/* Whether `path` is a file that begins like a GGUF file. False if it cannot be read. */
bool gguf_magic_at(const char *path);

#endif

/* gguf_magic.h - telling a GGUF file from others. */
#ifndef DSMOE_FORMATS_GGUF_MAGIC_H
#define DSMOE_FORMATS_GGUF_MAGIC_H

#include <stdbool.h>

/* Whether `path` is a file that begins as GGUF files do. One that cannot be read does not. */
bool gguf_magic_at(const char *path);

#endif

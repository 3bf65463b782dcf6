/* tiny_run.h - the smallest model that is still a DeepSeekMoE, a text for it, and runs of it that take
 * milliseconds. */
#ifndef DSMOE_TESTS_TINY_RUN_H
#define DSMOE_TESTS_TINY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { TINY_PATH = 512 };

/* hidden_size 16, one dense and one MoE layer, 4 routed experts and one shared, 320 tokens. */
dsmoe_config tiny_config(void);

/* Writes FOLDER/text: two files of different kinds, the same every time. */
void tiny_write_text(const char *folder);
/* Writes FOLDER/config.json. */
void tiny_write_config(const char *folder);
/* A few steps on that text with that configuration, and a checkpoint every second step. The run is
 * FOLDER/NAME. */
dsmoe_run_settings tiny_settings(const char *folder, const char *name);

/* Removes a folder with all its contents. */
void tiny_remove(const char *path);
/* The path FOLDER/NAME. The buffer is reused by the eighth call after this one. */
const char *tiny_path(const char *folder, const char *name);
bool tiny_exists(const char *path);
/* The contents of a file, to be freed. */
char *tiny_read(const char *path, size_t *size);
/* Fails the test if two files differ. */
void tiny_assert_same(const char *a, const char *b);

#endif

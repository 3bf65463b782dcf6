/* tiny_run.h - the smallest model that is still a DeepSeekMoE, a text for it, and runs of it that take
 * milliseconds. */
#ifndef DSMOE_TESTS_TINY_RUN_H
#define DSMOE_TESTS_TINY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { TINY_PATH = 512 };

/* hidden 16, a dense and a MoE layer, 4 routed experts and one shared, 320 tokens. */
dsmoe_config tiny_config(void);

/* FOLDER/text: two files of different kinds, the same every time. */
void tiny_write_text(const char *folder);
/* FOLDER/config.json */
void tiny_write_config(const char *folder);
/* Few steps over that text with that configuration, a checkpoint every second one. The run is
 * FOLDER/NAME. */
dsmoe_run_settings tiny_settings(const char *folder, const char *name);

/* Removes a folder with all that is in it. */
void tiny_remove(const char *path);
/* FOLDER/NAME in a buffer of its own until the eighth next call. */
const char *tiny_path(const char *folder, const char *name);
bool tiny_exists(const char *path);
/* The whole of a file, to be freed. */
char *tiny_read(const char *path, size_t *size);
/* Fails the test if two files differ. */
void tiny_assert_same(const char *a, const char *b);

#endif

/* conversions.h - what the tests of conversions share: configurations, models in the scratch
 * folder, and what lies there. */
#ifndef DSMOE_TESTS_CONVERSIONS_H
#define DSMOE_TESTS_CONVERSIONS_H

#include <stddef.h>

#include "dsmoe.h"

/* A name in the scratch folder, in a buffer of its own until the eighth next call. */
const char *in(const char *name);

/* Everything a GGUF file can express: a dense layer, two MoE ones, grouped keys and values, values
 * of config.json that are not the defaults. */
dsmoe_config small(void);
/* Rows that 256 divides, that only 32 divides, and that neither does. */
dsmoe_config blocky(void);

/* A fresh model, and a conversion on two threads; both fail the test on an error. */
void init(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype);
void convert(const char *from, const char *to, const char *type);

void copy_file(const char *from, const char *to);
/* Names in the scratch folder. */
int count_files(void);
/* Removes those names; then there must be none. */
void remove_all(const char *const *names, size_t n);
#define REMOVE(...)                                                                                \
    remove_all((const char *const[]){__VA_ARGS__},                                                 \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Tear-down of one test: what it left behind if it failed is not the next one's trouble. */
int clean_up(void **state);

#endif

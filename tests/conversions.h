/* conversions.h - what the tests of conversions share: configurations, models in the scratch folder, and a
 * count of its files. */
#ifndef DSMOE_TESTS_CONVERSIONS_H
#define DSMOE_TESTS_CONVERSIONS_H

#include <stddef.h>

#include "dsmoe.h"

/* The path of a name in the scratch folder. The buffer is reused by the eighth call after this one. */
const char *in(const char *name);

/* Everything that a GGUF file can express: a dense layer, two MoE layers, grouped keys and values, and
 * values of config.json that differ from the defaults. */
dsmoe_config small(void);
/* Row lengths that 256 divides, that only 32 divides, and that neither divides. */
dsmoe_config blocky(void);

/* Each fails the test on an error. The conversion uses two threads. */
void init(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype);
void convert(const char *from, const char *to, const char *type);

void copy_file(const char *from, const char *to);
/* The number of names in the scratch folder. */
int count_files(void);
/* Removes these names; after that the folder must be empty. */
void remove_all(const char *const *names, size_t n);
#define REMOVE(...)                                                                                \
    remove_all((const char *const[]){__VA_ARGS__},                                                 \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Tear-down of one test. If the test failed, this removes what it left, so that the next test starts
 * clean. */
int clean_up(void **state);

#endif

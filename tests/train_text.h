/* train_text.h - a tokenizer trained by a test on a text that it made up. */
#ifndef DSMOE_TESTS_TRAIN_TEXT_H
#define DSMOE_TESTS_TRAIN_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data_files.h"
#include "text/pre_tokenizer.h"

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, empty_directory, clear_directory)

size_t random_below(size_t n);
/* Prose of made-up words, of which few are frequent; n bytes, a NUL after them. To be freed. */
char *make_prose(size_t n);

/* Options to train on a file or folder of the test's folder; valid until the next call. */
dsmoe_tokenizer_train_options options_of(const char *name, int64_t vocab_size, int n_threads);
/* Both fail the test on an error. */
void train(const char *name, int64_t vocab_size, int n_threads, const char *folder);
dsmoe_tokenizer *open_trained(const char *folder);

void assert_same_files(const char *one, const char *other);
/* How many tokens a text has. */
size_t count_ids(const dsmoe_tokenizer *tokenizer, const char *text, size_t length);
/* `pre_tokenizer` of a tokenizer.json, or by itself. */
void read_pre_tokenizer(const char *text, size_t length, pre_tokenizer *pre);

#endif

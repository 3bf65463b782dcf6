/* train_text.h - a tokenizer that a test trains on a made-up text. */
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
/* n bytes of prose from made-up words, of which few are frequent, followed by NUL. To be freed. */
char *make_prose(size_t n);

/* Options to train on a file or folder in the test's folder; valid until the next call. */
dsmoe_tokenizer_train_options options_of(const char *name, int64_t vocab_size, int n_threads);
/* Both fail the test on an error. */
void train(const char *name, int64_t vocab_size, int n_threads, const char *folder);
dsmoe_tokenizer *open_trained(const char *folder);

void assert_same_files(const char *one, const char *other);
/* The number of tokens in a text. */
size_t count_ids(const dsmoe_tokenizer *tokenizer, const char *text, size_t length);
/* Reads the member `pre_tokenizer` of a tokenizer.json, or that member's value alone. */
void read_pre_tokenizer(const char *text, size_t length, pre_tokenizer *pre);

#endif

/* data_files.h - a folder tree of files to learn from, made and removed by a test. */
#ifndef DSMOE_TESTS_DATA_FILES_H
#define DSMOE_TESTS_DATA_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

/* Set-up and tear-down of one test: makes `directory` of scratch.h, empty, and removes it with all its
 * contents. */
int empty_directory(void **state);
int clear_directory(void **state);

/* The path of a file in that folder; valid until the eighth call after it. */
const char *in_directory(const char *name);
void make_folder(const char *name);
void write_data(const char *name, const void *bytes, size_t size);
void write_text(const char *name, const char *text);
/* Writes a shard of tokens: a header with the given fields, then n tokens of token_size bytes. */
void write_shard(const char *name, int32_t magic, int32_t version, int32_t count,
                 const uint32_t *tokens, size_t n, int token_size);
/* A file's bytes, to be freed; the test fails if there is none. */
unsigned char *read_data(const char *name, size_t *size);
bool exists(const char *name);

/* A tokenizer with an id for each byte, a few merges and an EOS; opened once. */
enum { SMALL_MERGED = 256, SMALL_BOS = 265, SMALL_EOS = 266, SMALL_VOCAB = 267 };
const dsmoe_tokenizer *small_tokenizer(void);
void small_tokenizer_free(void);
int small_tokenizer_teardown(void **state); /* small_tokenizer_free as the tear-down of a group */

/* Options to read `name` in the folder, with the cache in the same folder: the small tokenizer, sequences
 * of 4 tokens, nothing held out, one thread. */
dsmoe_dataset_options options_for(const char *name);
/* Each fails the test on an error. */
dsmoe_dataset *open_data(const dsmoe_dataset_options *options);
dsmoe_dataset *open_name(const char *name);
/* Fails the test unless the message contains both texts. */
void assert_data_refused(const dsmoe_dataset_options *options, dsmoe_status status,
                         const char *says, const char *and_says);
/* The tokens in data.cache begin with these: "104 105 …". */
void assert_cached(const char *expected);

#endif

/* made_tokenizer.h - small tokenizers in a GGUF file (`path` of scratch.h), right or wrong. */
#ifndef DSMOE_TESTS_MADE_TOKENIZER_H
#define DSMOE_TESTS_MADE_TOKENIZER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "formats/gguf_writer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

void must_work(dsmoe_status status, const dsmoe_error *error);
/* Begin writing the file again, and finish it. */
gguf_writer *begin_file(void);
void end_file(gguf_writer *writer);
/* Opens a tokenizer that must be good. */
dsmoe_tokenizer *open_tokenizer(const char *from);

/* What a test may change; all other keys are correct. */
typedef struct made_tokenizer {
    const char *const *tokens; /* NULL at the end */
    const int32_t *types;
    const char *const *merges; /* NULL at the end */
    const char *model, *pre;   /* NULL: no such key */
    size_t n_types;
    int64_t bos, eos, padding; /* -1: no such key */
    bool has_add_bos, add_bos, add_eos;
    const char *chat_template, *json;
    bool types_are_strings, merges_are_numbers, tokens_are_numbers;
    gguf_string odd; /* replaces token 1, if it has bytes */
} made_tokenizer;

/* The tokens a b c ab Ġ <s> </s> ø [PAD8]; the last is unused. */
enum { MADE_TOKENS = 9 };
extern const char *const made_tokens_list[MADE_TOKENS + 1];
made_tokenizer plain_tokenizer(void);
void write_made(const made_tokenizer *m);
dsmoe_tokenizer *open_made(const made_tokenizer *m);

/* For files that a test writes itself. */
void put_strings(gguf_writer *w, const char *key, const char *const *list, gguf_string odd);
void put_text(gguf_writer *w, const char *key, const char *text);

#endif

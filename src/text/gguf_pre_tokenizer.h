/* gguf_pre_tokenizer.h - the pre-tokenizers that GGUF files name (tokenizer.ggml.pre). */
#ifndef DSMOE_TEXT_GGUF_PRE_TOKENIZER_H
#define DSMOE_TEXT_GGUF_PRE_TOKENIZER_H

#include <stddef.h>

typedef struct gguf_pre_tokenizer {
    const char *name;
    const char *json; /* the `pre_tokenizer` in the tokenizer.json of its models */
} gguf_pre_tokenizer;

/* The first is for the released 16B models, and for files that name none. */
extern const gguf_pre_tokenizer gguf_pre_tokenizers[];
extern const size_t n_gguf_pre_tokenizers;

#endif

/* gguf_pre_tokenizer.h - what the names of pre-tokenizers in GGUF files (tokenizer.ggml.pre) stand for. */
#ifndef DSMOE_TEXT_GGUF_PRE_TOKENIZER_H
#define DSMOE_TEXT_GGUF_PRE_TOKENIZER_H

#include <stddef.h>

typedef struct gguf_pre_tokenizer {
    const char *name;
    const char
        *json; /* the `pre_tokenizer` in the tokenizer.json of the models that it comes from */
} gguf_pre_tokenizer;

/* The first is that of the released 16B models, and of files that name none. */
extern const gguf_pre_tokenizer gguf_pre_tokenizers[];
extern const size_t n_gguf_pre_tokenizers;

#endif

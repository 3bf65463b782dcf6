/* gguf_pre_tokenizer.h - what the name of a pre-tokenizer in a GGUF file stands for. */
#ifndef DSMOE_TEXT_GGUF_PRE_TOKENIZER_H
#define DSMOE_TEXT_GGUF_PRE_TOKENIZER_H

#define GGUF_PRE_TOKENIZER_NAME "deepseek-llm"

/* The `pre_tokenizer` in the tokenizer.json of the released models. */
extern const char gguf_pre_tokenizer_json[];

#endif

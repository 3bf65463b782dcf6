/* gguf_keys.h - the keys of a tokenizer in a GGUF file, and the kinds of tokens there. */
#ifndef DSMOE_TEXT_GGUF_KEYS_H
#define DSMOE_TEXT_GGUF_KEYS_H

#define GGUF_KEY_MODEL "tokenizer.ggml.model" /* "gpt2": byte-level BPE */
#define GGUF_KEY_PRE "tokenizer.ggml.pre"
#define GGUF_KEY_TOKENS "tokenizer.ggml.tokens"
#define GGUF_KEY_TYPES "tokenizer.ggml.token_type"
#define GGUF_KEY_MERGES "tokenizer.ggml.merges"
#define GGUF_KEY_BOS "tokenizer.ggml.bos_token_id"
#define GGUF_KEY_EOS "tokenizer.ggml.eos_token_id"
#define GGUF_KEY_PADDING "tokenizer.ggml.padding_token_id"
#define GGUF_KEY_ADD_BOS "tokenizer.ggml.add_bos_token"
#define GGUF_KEY_ADD_EOS "tokenizer.ggml.add_eos_token"
#define GGUF_KEY_TEMPLATE "tokenizer.chat_template"
#define GGUF_KEY_JSON "tokenizer.huggingface.json" /* a tokenizer.json, which takes precedence */
#define GGUF_KEY_CONFIG "dsmoe.tokenizer_config"   /* a tokenizer_config.json; "": there is none */

typedef enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,      /* an added token that is special */
    GGUF_TOKEN_USER_DEFINED = 4, /* an added token that is not special */
    GGUF_TOKEN_UNUSED = 5,       /* an id of the model that the tokenizer lacks */
    GGUF_TOKEN_BYTE = 6,
} gguf_token_type;

#endif

/* tokenizer.h - the parts of a tokenizer, and opening one from memory. */
#ifndef DSMOE_TEXT_TOKENIZER_H
#define DSMOE_TEXT_TOKENIZER_H

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

struct dsmoe_tokenizer {
    char *source; /* the file, for messages */
    bpe bpe;
    added_tokens added;
    normalizer normalizer;
    pre_tokenizer pre_tokenizer;
    int32_t bos, eos; /* -1: none */
    bool adds_bos;
    bool has_chat;                    /* the config has a chat_template */
    const dsmoe_chat_form *chat_form; /* the template's form; NULL: not a known one */
};

/* One of the two files, as bytes. */
typedef struct tokenizer_text {
    const char *bytes;
    size_t length;
    const char *source; /* for messages */
} tokenizer_text;

/* `config` (tokenizer_config.json) may be NULL. */
dsmoe_status tokenizer_parse(const tokenizer_text *text, const tokenizer_text *config,
                             dsmoe_tokenizer **tokenizer, dsmoe_error *error);

#endif

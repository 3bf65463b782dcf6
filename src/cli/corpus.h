/* corpus.h - a text file as the tokens a model reads, for `eval` and `inspect --routing`. */
#ifndef DSMOE_CLI_CORPUS_H
#define DSMOE_CLI_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"
#include "study/token_text.h"

typedef struct corpus_source {
    const char *command;    /* for messages */
    const char *model_path; /* the folder with the tokenizer */
    const char *text_path;  /* "-" for stdin */
    bool ids;               /* the text is token ids between spaces: no tokenizer, no BOS */
} corpus_source;

/* A text, without BOS. A window is a stretch of the text, with BOS before it if the model expects one. */
typedef struct corpus {
    dsmoe_tokenizer *tokenizer; /* NULL with ids */
    int32_t bos;                /* -1: none is put before a window */
    int32_t *tokens;
    int64_t n_tokens;
    int64_t n_bytes; /* of the text; 0 with ids */
} corpus;

/* Reads a text and checks that every token is below the model's vocab_size. On failure the message is printed
 * and the exit code returned, otherwise CLI_OK. */
int corpus_read(const corpus_source *source, const dsmoe_config *config, corpus *text);
void corpus_free(corpus *text);

/* The same text in the library's form; valid until corpus_free. */
token_text corpus_text(const corpus *text);
/* Copies a window of the text: see token_text_window. */
int64_t corpus_window(const corpus *text, int64_t start, int32_t *buffer, int64_t n_tokens);

/* The most positions that a window may have: n_ctx, or max_position_embeddings if n_ctx is 0, but no more
 * than the text needs. Prints a warning if the model was made for fewer. */
int64_t corpus_context(const char *command, const corpus *text, const dsmoe_config *config,
                       int64_t n_ctx);

#endif

/* gguf_tokenizer.h - the tokenizer of a GGUF file, as the two JSON texts of a folder and back.
 *
 * Tokens, their types and the merges are arrays of the metadata; the way of cutting a text has only a
 * name there. The only reader of tokenizers reads JSON, so the arrays are turned into the text of a
 * tokenizer.json. If the keys cannot express a tokenizer, the file holds its JSON as well
 * (tokenizer.huggingface.json), which then takes precedence. So does the text of a
 * tokenizer_config.json (dsmoe.tokenizer_config). A program that changes the keys of such a file must
 * remove these two. */
#ifndef DSMOE_TEXT_GGUF_TOKENIZER_H
#define DSMOE_TEXT_GGUF_TOKENIZER_H

#include "formats/gguf.h"
#include "formats/gguf_writer.h"

/* Both end with a NUL that the length does not count. */
typedef struct gguf_tokenizer_text {
    char *json; /* tokenizer.json */
    size_t json_length;
    char *config; /* tokenizer_config.json; NULL: none */
    size_t config_length;
} gguf_tokenizer_text;

/* False if tokenizer.ggml.model is absent or "none": the model has ids only. */
bool gguf_tokenizer_present(const gguf *file);
/* Makes the texts; a file without a tokenizer is an error. Free with gguf_tokenizer_text_free. */
dsmoe_status gguf_tokenizer_text_make(const gguf *file, gguf_tokenizer_text *text,
                                      dsmoe_error *error);
void gguf_tokenizer_text_free(gguf_tokenizer_text *text); /* allowed on a zeroed one */

/* Writes the keys tokenizer.* for a model of vocab_size from the tokenizer at `path` (as for
 * dsmoe_tokenizer_open). `form`, unless NULL, replaces its own chat form. Ids that it lacks become unused
 * tokens "[PAD100015]". */
dsmoe_status gguf_tokenizer_write(const char *path, const dsmoe_chat_form *form, int64_t vocab_size,
                                  gguf_writer *writer, dsmoe_error *error);

#endif

/* dsmoe/text.h - text and tokens: the tokenizer, how much of a text can already be shown, chat forms. */
#ifndef DSMOE_TEXT_H
#define DSMOE_TEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A byte-level BPE tokenizer from tokenizer.json. Immutable; threads may share one. */
typedef struct dsmoe_tokenizer dsmoe_tokenizer;
/* `path` is a tokenizer.json, a folder with one (and optionally a tokenizer_config.json and a
 * chat_template.jinja), or a .gguf file. */
DSMOE_API dsmoe_status dsmoe_tokenizer_open(const char *path, dsmoe_tokenizer **tokenizer,
                                            dsmoe_error *error);
DSMOE_API void dsmoe_tokenizer_free(dsmoe_tokenizer *tokenizer);

DSMOE_API int64_t dsmoe_tokenizer_size(const dsmoe_tokenizer *tokenizer); /* ids are below it */
DSMOE_API int32_t dsmoe_tokenizer_bos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
DSMOE_API int32_t dsmoe_tokenizer_eos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
/* Whether the model expects the BOS token before a text (add_bos_token). */
DSMOE_API bool dsmoe_tokenizer_adds_bos(const dsmoe_tokenizer *tokenizer);
/* Whether the model's files have a chat_template, as those of models trained for conversations do. The
 * template itself is never run. */
DSMOE_API bool dsmoe_tokenizer_has_chat(const dsmoe_tokenizer *tokenizer);
DSMOE_API bool dsmoe_tokenizer_is_special(const dsmoe_tokenizer *tokenizer, int32_t id);

/* Flags of dsmoe_tokenizer_encode. */
enum {
    DSMOE_ENCODE_BOS = 1, /* put the BOS token first, if there is one and the model expects it */
    DSMOE_ENCODE_SPECIAL = 2, /* text that spells a special token becomes that token; without this
                                 flag it stays text, which is right for text from users */
};
/* Encodes any bytes: those that are not UTF-8 are kept as bytes, but a byte for which the vocabulary has no
 * token becomes U+FFFD. Free *ids with free(). */
DSMOE_API dsmoe_status dsmoe_tokenizer_encode(const dsmoe_tokenizer *tokenizer, const char *text,
                                              size_t length, int flags, int32_t **ids,
                                              size_t *n_ids, dsmoe_error *error);
/* Decodes ids, special tokens included. The text ends with a NUL that *length does not count; free it with
 * free(). An id that the tokenizer does not have is an error. */
DSMOE_API dsmoe_status dsmoe_tokenizer_decode(const dsmoe_tokenizer *tokenizer, const int32_t *ids,
                                              size_t n_ids, char **text, size_t *length,
                                              dsmoe_error *error);
/* The bytes of one token, perhaps only part of a character; NULL if there is no such id. */
DSMOE_API const char *dsmoe_tokenizer_piece(const dsmoe_tokenizer *tokenizer, int32_t id,
                                            size_t *length);

/* How many of the bytes can be shown now: all except the beginning of a character at the end, which more
 * bytes may complete. Bytes that cannot become a character are not held back. */
DSMOE_API size_t dsmoe_utf8_complete(const char *bytes, size_t length);

/* How much of a text can be shown if it ends at the first stop text. If a stop text is found, that is
 * everything before it, and *stopped is its index. Otherwise *stopped is -1, and it is everything before a
 * stop text that may be beginning at the text's end. The bytes before `from` were already shown. */
DSMOE_API size_t dsmoe_stop_find(const char *text, size_t length, size_t from,
                                 const char *const *stops, int n_stops, int *stopped);

/* One message of a conversation. */
typedef struct dsmoe_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} dsmoe_message;
/* A chat form: which texts and special tokens surround messages. There are "deepseek" ("User:
 * …\n\nAssistant: …" and EOS), "deepseek-v3", "deepseek-v3-0324", "moonlight", "chatml", "alpaca" and "none".
 * Forms are constants and are not freed. */
typedef struct dsmoe_chat_form dsmoe_chat_form;
/* Finds a form by name. NULL: the one that the model's chat_template is recognised as, or "deepseek" if its
 * files have no template. An unknown template is an error, and so is a form that needs a token which the
 * tokenizer lacks. */
DSMOE_API dsmoe_status dsmoe_chat_form_find(const dsmoe_tokenizer *tokenizer, const char *name,
                                            const dsmoe_chat_form **form, dsmoe_error *error);
DSMOE_API const char *dsmoe_chat_form_name(const dsmoe_chat_form *form);
/* The form that the chat template of a folder (chat_template.jinja or tokenizer_config.json) is recognised
 * as, for example the one that an adapter has learned conversations in. NULL: there is no template, or it is
 * not known. */
DSMOE_API const dsmoe_chat_form *dsmoe_chat_form_recorded(const char *folder);
/* What begins every answer but is not part of the message: " " or "". */
DSMOE_API const char *dsmoe_chat_form_lead(const dsmoe_chat_form *form);
/* The token that ends an answer; -1: the tokenizer has none. */
DSMOE_API int32_t dsmoe_chat_form_end(const dsmoe_tokenizer *tokenizer,
                                      const dsmoe_chat_form *form);
/* Encodes messages, and the opening of an assistant's answer if asked for. Contents are plain text; only the
 * frame has special tokens. Free *ids with free(). */
DSMOE_API dsmoe_status dsmoe_chat_encode(const dsmoe_tokenizer *tokenizer,
                                         const dsmoe_chat_form *form, const dsmoe_message *messages,
                                         size_t n_messages, bool add_generation_prompt,
                                         int32_t **ids, size_t *n_ids, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

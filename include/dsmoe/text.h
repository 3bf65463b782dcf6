/* dsmoe/text.h - text and tokens: the tokenizer, what can be shown of a text, forms of conversations. */
#ifndef DSMOE_TEXT_H
#define DSMOE_TEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A byte-level BPE tokenizer from tokenizer.json. Immutable; threads may share one. */
typedef struct dsmoe_tokenizer dsmoe_tokenizer;
/* `path` is a tokenizer.json, a folder that holds one and perhaps a tokenizer_config.json and a chat_template.jinja, or a
 * .gguf file. */
DSMOE_API dsmoe_status dsmoe_tokenizer_open(const char *path, dsmoe_tokenizer **tokenizer,
                                            dsmoe_error *error);
DSMOE_API void dsmoe_tokenizer_free(dsmoe_tokenizer *tokenizer);

DSMOE_API int64_t dsmoe_tokenizer_size(const dsmoe_tokenizer *tokenizer); /* ids are below it */
DSMOE_API int32_t dsmoe_tokenizer_bos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
DSMOE_API int32_t dsmoe_tokenizer_eos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
/* Whether the model expects the BOS token before a text (add_bos_token). */
DSMOE_API bool dsmoe_tokenizer_adds_bos(const dsmoe_tokenizer *tokenizer);
/* Whether the model's files say how conversations are written (chat_template), as those of models that were
 * trained to converse do; the template itself is never run. */
DSMOE_API bool dsmoe_tokenizer_has_chat(const dsmoe_tokenizer *tokenizer);
DSMOE_API bool dsmoe_tokenizer_is_special(const dsmoe_tokenizer *tokenizer, int32_t id);

/* Flags of dsmoe_tokenizer_encode. */
enum {
    DSMOE_ENCODE_BOS = 1, /* put the BOS token first, if there is one and the model expects it */
    DSMOE_ENCODE_SPECIAL = 2, /* text that spells a special token becomes that token; without this
                                 flag it stays text, which is what text of a user should be */
};
/* Any bytes are text: what is not UTF-8 survives as bytes, except that a byte for which the
 * vocabulary has no token becomes U+FFFD. *ids is to be freed with free(). */
DSMOE_API dsmoe_status dsmoe_tokenizer_encode(const dsmoe_tokenizer *tokenizer, const char *text,
                                              size_t length, int flags, int32_t **ids,
                                              size_t *n_ids, dsmoe_error *error);
/* Text of the ids, special tokens included, ended by a NUL that *length does not count; to be freed
 * with free(). An id the tokenizer does not have is an error. */
DSMOE_API dsmoe_status dsmoe_tokenizer_decode(const dsmoe_tokenizer *tokenizer, const int32_t *ids,
                                              size_t n_ids, char **text, size_t *length,
                                              dsmoe_error *error);
/* The bytes of one token, maybe a part of a character only; NULL if there is no such id. */
DSMOE_API const char *dsmoe_tokenizer_piece(const dsmoe_tokenizer *tokenizer, int32_t id,
                                            size_t *length);

/* How many of the bytes can be shown now: all but the beginning of a character at the end that may
 * still be completed. Bytes that never become a character do not hold anything back. */
DSMOE_API size_t dsmoe_utf8_complete(const char *bytes, size_t length);

/* How much of a text can be shown if it ends where the first stop text begins: all before that one, whose
 * index *stopped becomes; or, with *stopped -1, all before one that may be beginning at the text's end. What
 * comes before `from` was shown already. */
DSMOE_API size_t dsmoe_stop_find(const char *text, size_t length, size_t from,
                                 const char *const *stops, int n_stops, int *stopped);

/* A conversation, and the form in which a model reads it. */
typedef struct dsmoe_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} dsmoe_message;
/* Which texts and special tokens stand around what is said: "deepseek" ("User: …\n\nAssistant: …" and EOS),
 * "deepseek-v3", "deepseek-v3-0324", "moonlight", "chatml", "alpaca" or "none". A row of a table; nothing is to be
 * freed. */
typedef struct dsmoe_chat_form dsmoe_chat_form;
/* The form of that name. NULL: the one that the model's chat_template is recognised as, or "deepseek" where its files have
 * none; a template that is not known is an error, and so is a form of which the tokenizer lacks a token. */
DSMOE_API dsmoe_status dsmoe_chat_form_find(const dsmoe_tokenizer *tokenizer, const char *name,
                                            const dsmoe_chat_form **form, dsmoe_error *error);
DSMOE_API const char *dsmoe_chat_form_name(const dsmoe_chat_form *form);
/* What begins every answer but is not part of what is said: " ", or "". */
DSMOE_API const char *dsmoe_chat_form_lead(const dsmoe_chat_form *form);
/* The token that ends an answer; -1: the tokenizer has none. */
DSMOE_API int32_t dsmoe_chat_form_end(const dsmoe_tokenizer *tokenizer,
                                      const dsmoe_chat_form *form);
/* Ids of the messages, with the opening of an assistant's answer if asked for. Contents are plain
 * text; only the frame has special tokens. *ids is to be freed with free(). */
DSMOE_API dsmoe_status dsmoe_chat_encode(const dsmoe_tokenizer *tokenizer,
                                         const dsmoe_chat_form *form, const dsmoe_message *messages,
                                         size_t n_messages, bool add_generation_prompt,
                                         int32_t **ids, size_t *n_ids, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

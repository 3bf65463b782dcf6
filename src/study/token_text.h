/* token_text.h - a text as tokens, which a model reads in windows. */
#ifndef DSMOE_STUDY_TOKEN_TEXT_H
#define DSMOE_STUDY_TOKEN_TEXT_H

#include <stdint.h>

typedef struct token_text {
    const int32_t *tokens; /* [n_tokens] */
    int64_t n_tokens;
    int32_t bos; /* comes before each window; -1: none */
} token_text;

/* Fills `window` with BOS, if there is one, and the tokens of the text from `start`. `window` has room for
 * n_ctx tokens; fewer are filled at the end of the text. Returns how many. */
int64_t token_text_window(const token_text *text, int64_t start, int32_t *window, int64_t n_ctx);

#endif

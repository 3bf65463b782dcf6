/* token_text.c - a text as tokens, which a model reads in windows. */
#include "study/token_text.h"

#include <string.h>

int64_t token_text_window(const token_text *text, int64_t start, int32_t *window, int64_t n_ctx)
{
    int64_t n_bos = text->bos >= 0, n_text = text->n_tokens - start;
    if (n_text > n_ctx - n_bos) n_text = n_ctx - n_bos;
    if (n_bos) window[0] = text->bos;
    memcpy(window + n_bos, text->tokens + start, (size_t)n_text * sizeof *window);
    return n_bos + n_text;
}

/* text_loss.h - how well a model predicts a text.
 *
 * A window of n_ctx tokens (with BOS, if the model expects it) moves over the text by `stride`. In each
 * window only tokens count that no earlier window has scored. So every token counts once and, except at the
 * very beginning, has at least n_ctx - stride tokens before it. */
#ifndef DSMOE_STUDY_TEXT_LOSS_H
#define DSMOE_STUDY_TEXT_LOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"
#include "study/token_text.h"

typedef struct text_loss_options {
    /* n_ctx is the window, at least 2. If `stop` returns true, the measurement is interrupted. */
    dsmoe_engine_options engine;
    int64_t stride;                   /* 1 … n_ctx - 1 */
    const dsmoe_tokenizer *tokenizer; /* of the text, to count bytes; NULL: they are not counted */
    int64_t n_bytes;                  /* of the whole text; 0: those that its tokens spell */
    dsmoe_progress_fn *progress;      /* may be NULL; counts tokens. False interrupts */
    void *context;
} text_loss_options;

/* What is known so far. */
typedef struct text_loss {
    int64_t n_scored, n_bytes, n_windows;
    int64_t n_run; /* tokens that went through the model */
    double sum, sum_squares, seconds;
    bool interrupted;
} text_loss;

/* Runs all windows. The text must have at least two tokens, BOS included. An interruption is not a failure:
 * the result then covers what was read. */
dsmoe_status text_loss_measure(const dsmoe_model *model, const token_text *text,
                               const text_loss_options *options, text_loss *result,
                               dsmoe_error *error);

/* The mean in nats per token, its standard error and what follows from them. n_scored must not be 0. */
typedef struct text_loss_numbers {
    double cross_entropy, error, perplexity;
    double bits_per_byte, tokens_per_s; /* 0: not known */
} text_loss_numbers;
text_loss_numbers text_loss_compute(const text_loss *result);

#endif

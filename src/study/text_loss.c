/* text_loss.c - runs a model over a text, window after window, and adds up the losses of the tokens. */
#include "study/text_loss.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"

enum { BATCH = 512 }; /* tokens that go through the model together */

typedef struct measuring {
    const text_loss_options *options;
    const token_text *text;
    text_loss *result;
    dsmoe_sequence *sequence;
    int64_t n_total; /* tokens that all windows will run */
    int32_t *window; /* [n_ctx] */
    float *loss;     /* [BATCH] */
} measuring;

/* The number of tokens that all windows run: each window runs all but its last token. */
static int64_t count_run(const token_text *text, int64_t n_ctx, int64_t stride)
{
    int64_t n_total = 0, n_bos = text->bos >= 0;
    for (int64_t start = 0;; start += stride) {
        bool last = start + n_ctx - n_bos >= text->n_tokens;
        n_total += last ? text->n_tokens - start + n_bos - 1 : n_ctx - 1;
        if (last) return n_total;
    }
}

static void add_losses(measuring *m, const int32_t *targets, int64_t n)
{
    text_loss *result = m->result;
    for (int64_t i = 0; i < n; i++) {
        size_t length = 0;
        double loss = (double)m->loss[i];
        result->sum += loss;
        result->sum_squares += loss * loss;
        if (m->options->tokenizer)
            dsmoe_tokenizer_piece(m->options->tokenizer, targets[i], &length);
        result->n_bytes += (int64_t)length;
    }
    result->n_scored += n;
}

/* Runs tokens done … end - 1 of the window, and scores those of the tokens after them that come from
 * `first_scored` on. */
static dsmoe_status run_batch(measuring *m, int64_t done, int64_t end, int64_t first_scored,
                              dsmoe_error *error)
{
    int64_t n = end - done, n_scored = end - first_scored + 1;
    if (n_scored < 0) n_scored = 0;
    if (n_scored > n) n_scored = n;
    const int32_t *targets = m->window + end + 1 - n_scored;
    dsmoe_turn turn = {.sequence = m->sequence, .tokens = m->window + done, .n_tokens = n};
    if (n_scored > 0) {
        turn.n_logits = n_scored;
        turn.targets = targets;
        turn.loss = m->loss;
    }
    STATUS_TRY(dsmoe_engine_forward(dsmoe_sequence_engine(m->sequence), &turn, 1, error));
    add_losses(m, targets, n_scored);
    m->result->n_run += n;
    const text_loss_options *o = m->options;
    if (!o->progress || o->progress(o->context, (double)m->result->n_run, (double)m->n_total))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

/* Runs all tokens of the window but the last. */
static dsmoe_status run_window(measuring *m, int64_t n_window, int64_t first_scored,
                               dsmoe_error *error)
{
    STATUS_TRY(dsmoe_sequence_rewind(m->sequence, 0, error));
    for (int64_t done = 0; done < n_window - 1; done += BATCH) {
        int64_t end = n_window - 1 - done < BATCH ? n_window - 1 : done + BATCH;
        STATUS_TRY(run_batch(m, done, end, first_scored, error));
    }
    return DSMOE_OK;
}

static dsmoe_status run_all(measuring *m, dsmoe_error *error)
{
    const token_text *text = m->text;
    int64_t n_ctx = m->options->engine.n_ctx, n_bos = text->bos >= 0;
    int64_t scored_to = n_bos ? 0 : 1; /* nothing comes before the first token */
    for (int64_t start = 0;; start += m->options->stride) {
        int64_t n_window = token_text_window(text, start, m->window, n_ctx);
        dsmoe_status status = run_window(m, n_window, n_bos + scored_to - start, error);
        m->result->n_windows++;
        if (status != DSMOE_OK) return status;
        scored_to = start + n_window - n_bos;
        if (scored_to >= text->n_tokens) return DSMOE_OK;
    }
}

static dsmoe_status run_model(measuring *m, const dsmoe_model *model, dsmoe_error *error)
{
    dsmoe_engine_options options = m->options->engine;
    dsmoe_engine *engine = NULL;
    options.n_batch = BATCH;
    dsmoe_status status = dsmoe_engine_create(model, &options, &engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(engine, &m->sequence, error);
    double start = clock_seconds();
    if (status == DSMOE_OK) status = run_all(m, error);
    m->result->seconds = clock_seconds() - start;
    dsmoe_engine_free(engine);
    return status;
}

dsmoe_status text_loss_measure(const dsmoe_model *model, const token_text *text,
                               const text_loss_options *options, text_loss *result,
                               dsmoe_error *error)
{
    int64_t n_ctx = options->engine.n_ctx;
    measuring m = {.options = options, .text = text, .result = result};
    *result = (text_loss){0};
    if (n_ctx < 2 || options->stride < 1 || options->stride >= n_ctx)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a window of %lld tokens cannot move by %lld", (long long)n_ctx,
                           (long long)options->stride);
    if (text->n_tokens + (text->bos >= 0) < 2)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "only one token, with nothing before it to predict it from");
    m.n_total = count_run(text, n_ctx, options->stride);
    m.window = malloc((size_t)n_ctx * sizeof *m.window);
    m.loss = malloc(BATCH * sizeof *m.loss);
    dsmoe_status status = m.window && m.loss
                              ? run_model(&m, model, error)
                              : status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    free(m.window);
    free(m.loss);
    result->interrupted = status == DSMOE_ERROR_STOPPED;
    if (status != DSMOE_OK && !result->interrupted) return status;
    /* Tokens may spell the text with other bytes: what is not UTF-8 becomes U+FFFD. */
    if (options->n_bytes > 0 && result->n_scored == text->n_tokens)
        result->n_bytes = options->n_bytes;
    if (isfinite(result->sum)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_NONFINITE,
                       "the model's predictions are not finite numbers");
}

text_loss_numbers text_loss_compute(const text_loss *result)
{
    double n = (double)result->n_scored, mean = result->sum / n;
    double variance = n > 1 ? (result->sum_squares - n * mean * mean) / (n - 1) : 0;
    text_loss_numbers numbers = {.cross_entropy = mean,
                                 .error = variance > 0 ? sqrt(variance / n) : 0,
                                 .perplexity = exp(mean)};
    if (result->seconds > 0) numbers.tokens_per_s = (double)result->n_run / result->seconds;
    if (result->n_bytes > 0) numbers.bits_per_byte = result->sum / log(2) / (double)result->n_bytes;
    return numbers;
}

/* compare.c - how far a model is from another one on a text.
 *
 * Both models run over the same tokens side by side, some rows at a time. Only the logits of these rows are
 * kept, so memory stays bounded whatever the vocabulary and the length of a piece. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"
#include "base/threads.h"
#include "moe/moe.h"

enum {
    DEFAULT_CONTEXT = 512,
    MOST_ROWS = 512,           /* rows that run together */
    LOGITS = 16 * 1024 * 1024, /* about as many are kept of each model, but at least one row */
};

/* What one token contributes. */
typedef struct token_result {
    double kl, loss, loss_against;
    bool same_top;
} token_result;

/* One of the two models. */
typedef struct side {
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    float *logits; /* [n_rows, n_vocab] */
    int64_t n_vocab;
} side;

typedef struct comparing {
    int64_t n_vocab, n_rows;
    int n_threads;
    side model, against;
    const int32_t *targets; /* the tokens that follow those of the current rows */
    token_result *results;  /* of each token so far, then of the current rows */
    int64_t n;
} comparing;

/* ---- one token ------------------------------------------------------------------------------ */

typedef struct distribution {
    const float *logits;
    double log_sum; /* log Σ e^logit: log p = logit - log_sum */
    int64_t top;    /* the likeliest token; the first of equals */
} distribution;

static distribution distribution_of(const float *logits, int64_t n)
{
    distribution d = {.logits = logits};
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[d.top]) d.top = i;
    double max = logits[d.top], sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    d.log_sum = max + log(sum);
    return d;
}

/* Σ p·log(p/q), at least 0 in spite of rounding. */
static double divergence(const distribution *p, const distribution *q, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double log_p = p->logits[i] - p->log_sum, log_q = q->logits[i] - q->log_sum;
        sum += exp(log_p) * (log_p - log_q);
    }
    return fmax(sum, 0);
}

static void compare_task(void *context, int64_t row, int thread)
{
    (void)thread;
    comparing *c = context;
    distribution p = distribution_of(c->against.logits + row * c->n_vocab, c->n_vocab);
    distribution q = distribution_of(c->model.logits + row * c->n_vocab, c->n_vocab);
    int32_t target = c->targets[row];
    c->results[c->n + row] = (token_result){.kl = divergence(&p, &q, c->n_vocab),
                                            .loss = q.log_sum - q.logits[target],
                                            .loss_against = p.log_sum - p.logits[target],
                                            .same_top = p.top == q.top};
}

/* ---- the text ------------------------------------------------------------------------------- */

static void keep_row(void *context, int64_t row, const float *logits)
{
    const side *s = context;
    memcpy(s->logits + row * s->n_vocab, logits, (size_t)s->n_vocab * sizeof *logits);
}

static dsmoe_status run_rows(side *s, const int32_t *tokens, int64_t n, dsmoe_error *error)
{
    dsmoe_turn turn = {.sequence = s->sequence,
                       .tokens = tokens,
                       .n_tokens = n,
                       .n_logits = n,
                       .visit = keep_row,
                       .context = s};
    return dsmoe_engine_forward(s->engine, &turn, 1, error);
}

/* Runs some rows through both models. Each row predicts the token after it. */
static dsmoe_status compare_rows(comparing *c, const int32_t *tokens, int64_t n, dsmoe_error *error)
{
    STATUS_TRY(run_rows(&c->model, tokens, n, error));
    STATUS_TRY(run_rows(&c->against, tokens, n, error));
    c->targets = tokens + 1;
    threads_for(c->n_threads, n, compare_task, c);
    c->n += n;
    return DSMOE_OK;
}

static dsmoe_status compare_text(comparing *c, const int32_t *tokens, int64_t n_tokens,
                                 int64_t n_ctx, dsmoe_progress_fn *progress, void *context,
                                 dsmoe_error *error)
{
    for (int64_t start = 0; start < n_tokens; start += n_ctx) {
        int64_t n_run = moe_min(n_ctx, n_tokens - start) - 1; /* the last token predicts nothing */
        STATUS_TRY(dsmoe_sequence_rewind(c->model.sequence, 0, error));
        STATUS_TRY(dsmoe_sequence_rewind(c->against.sequence, 0, error));
        for (int64_t done = 0; done < n_run; done += c->n_rows) {
            int64_t n = moe_min(c->n_rows, n_run - done);
            STATUS_TRY(compare_rows(c, tokens + start + done, n, error));
            if (progress && !progress(context, (double)(start + done + n), (double)n_tokens))
                return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
        }
    }
    return DSMOE_OK;
}

/* ---- the outcome ---------------------------------------------------------------------------- */

static int by_kl(const void *a, const void *b)
{
    double x = ((const token_result *)a)->kl, y = ((const token_result *)b)->kl;
    return (x > y) - (x < y);
}

static dsmoe_comparison outcome(comparing *c)
{
    double n = (double)c->n, kl = 0, squares = 0, loss = 0, loss_against = 0;
    int64_t n_same = 0;
    for (int64_t i = 0; i < c->n; i++) {
        kl += c->results[i].kl / n;
        loss += c->results[i].loss / n;
        loss_against += c->results[i].loss_against / n;
        n_same += c->results[i].same_top;
    }
    for (int64_t i = 0; i < c->n; i++) squares += (c->results[i].kl - kl) * (c->results[i].kl - kl);
    qsort(c->results, (size_t)c->n, sizeof *c->results, by_kl);
    return (dsmoe_comparison){
        .kl = kl,
        .kl_error = c->n > 1 ? sqrt(squares / (n - 1) / n) : 0,
        .kl_99 = c->results[c->n - c->n / 100 - 1].kl,
        .kl_max = c->results[c->n - 1].kl,
        .same_top = (double)n_same / n,
        .perplexity = exp(loss),
        .perplexity_against = exp(loss_against),
        .n_tokens = c->n,
    };
}

/* ---- interface ------------------------------------------------------------------------------ */

static dsmoe_status check(const dsmoe_model *model, const dsmoe_model *against,
                          const int32_t *tokens, int64_t n_tokens, int64_t n_ctx,
                          dsmoe_error *error)
{
    if (!model || !against || !tokens)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "two models and tokens are needed");
    int64_t n = dsmoe_model_config(model)->vocab_size;
    int64_t n_against = dsmoe_model_config(against)->vocab_size;
    if (n != n_against)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "models with %lld and %lld tokens in their vocabularies cannot be "
                           "compared",
                           (long long)n, (long long)n_against);
    if (n_ctx < 2 || n_tokens < 2)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%lld tokens in pieces of %lld: nothing to predict", (long long)n_tokens,
                           (long long)n_ctx);
    for (int64_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= n)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "token %lld is id %d; ids are 0 to %lld", (long long)i, tokens[i],
                               (long long)(n - 1));
    return DSMOE_OK;
}

static dsmoe_status open_side(side *s, const comparing *c, const dsmoe_model *model,
                              const dsmoe_engine_options *options, dsmoe_error *error)
{
    s->n_vocab = c->n_vocab;
    s->logits = malloc((size_t)(c->n_rows * c->n_vocab) * sizeof *s->logits);
    if (!s->logits)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "not enough memory for the scores of %lld tokens", (long long)c->n_rows);
    STATUS_TRY(dsmoe_engine_create(model, options, &s->engine, error));
    return dsmoe_sequence_create(s->engine, &s->sequence, error);
}

static void close_side(side *s)
{
    dsmoe_engine_free(s->engine);
    free(s->logits);
}

static dsmoe_status prepare(comparing *c, const dsmoe_model *model, const dsmoe_model *against,
                            int64_t n_tokens, int64_t n_ctx, int n_threads, dsmoe_error *error)
{
    size_t size;
    n_ctx = moe_min(n_ctx, n_tokens);
    c->n_rows = moe_min(MOST_ROWS, moe_min(n_ctx, 1 + LOGITS / c->n_vocab));
    if (checked_mul_size((size_t)n_tokens, sizeof *c->results, &size)) c->results = malloc(size);
    if (!c->results)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to compare %lld tokens",
                           (long long)n_tokens);
    const dsmoe_engine_options options = {
        .n_ctx = n_ctx, .n_batch = c->n_rows, .n_threads = n_threads};
    STATUS_TRY(open_side(&c->model, c, model, &options, error));
    return open_side(&c->against, c, against, &options, error);
}

dsmoe_status dsmoe_model_compare(const dsmoe_model *model, const dsmoe_model *against,
                                 const int32_t *tokens, int64_t n_tokens, int64_t n_ctx,
                                 int n_threads, dsmoe_progress_fn *progress, void *context,
                                 dsmoe_comparison *comparison, dsmoe_error *error)
{
    if (!comparison)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no place for the comparison given");
    if (n_ctx == 0) n_ctx = DEFAULT_CONTEXT;
    STATUS_TRY(check(model, against, tokens, n_tokens, n_ctx, error));
    comparing c = {.n_vocab = dsmoe_model_config(model)->vocab_size,
                   .n_threads = n_threads > 0 ? n_threads : threads_available()};
    dsmoe_status status = prepare(&c, model, against, n_tokens, n_ctx, n_threads, error);
    if (status == DSMOE_OK)
        status = compare_text(&c, tokens, n_tokens, n_ctx, progress, context, error);
    if (status == DSMOE_OK) *comparison = outcome(&c);
    close_side(&c.model);
    close_side(&c.against);
    free(c.results);
    return status;
}

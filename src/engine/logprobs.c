/* logprobs.c - log probabilities of tokens: log softmax of one row of logits.
 *
 * Two passes over the row: the first finds the likeliest tokens, the second adds up e^(logit - largest
 * logit). That sum cannot overflow and is at least 1. */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/status.h"

static dsmoe_status check_arguments(const float *logits, int64_t vocab_size, int32_t token,
                                    int n_top, const dsmoe_logprobs *out, dsmoe_error *error)
{
    if (!logits || !out)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no logits or no place for log probabilities given");
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "vocab_size is %" PRId64 ", outside 1 to %d", vocab_size, INT32_MAX);
    if (token < 0 || token >= vocab_size)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "token %" PRId32 " is outside 0 to %" PRId64, token, vocab_size - 1);
    if (n_top < 0 || n_top > DSMOE_LOGPROBS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "n_top is %d, outside 0 to %d", n_top,
                           DSMOE_LOGPROBS_MAX);
    return DSMOE_OK;
}

/* The tokens with the largest logits, sorted. For now, `logprob` holds the logit. */
typedef struct ranking {
    dsmoe_logprob *at;
    int n, capacity;
} ranking;

/* Call it with rising ids: of tokens with equal logits, the earlier stays first. */
static void rank(ranking *r, int32_t id, double logit)
{
    int i = r->n < r->capacity ? r->n++ : r->n - 1;
    for (; i > 0 && r->at[i - 1].logprob < logit; i--) r->at[i] = r->at[i - 1];
    r->at[i] = (dsmoe_logprob){id, logit};
}

/* Fills the ranking; *largest is the largest logit. */
static dsmoe_status find_likeliest(const float *logits, int64_t vocab_size, ranking *r,
                                   float *largest, dsmoe_error *error)
{
    float enough = -INFINITY; /* only larger logits get into the ranking */
    *largest = -INFINITY;
    for (int64_t i = 0; i < vocab_size; i++) {
        float logit = logits[i];
        if (logit <= enough) continue;
        if (!(logit <= FLT_MAX)) /* also true for NaN */
            return status_fail(error, DSMOE_ERROR_NONFINITE, "the logit of token %" PRId64 " is %g",
                               i, (double)logit);
        if (logit > *largest) *largest = logit;
        if (r->capacity > 0) rank(r, (int32_t)i, logit);
        if (r->n == r->capacity) enough = r->n > 0 ? (float)r->at[r->n - 1].logprob : *largest;
    }
    if (*largest == -INFINITY)
        return status_fail(error, DSMOE_ERROR_NONFINITE, "the logits of all tokens are -inf");
    return DSMOE_OK;
}

static double log_sum_exp(const float *logits, int64_t vocab_size, double largest)
{
    double sum = 0;
    for (int64_t i = 0; i < vocab_size; i++) sum += exp((double)logits[i] - largest);
    return log(sum);
}

dsmoe_status dsmoe_logprobs_compute(const float *logits, int64_t vocab_size, int32_t token,
                                    int n_top, dsmoe_logprobs *logprobs, dsmoe_error *error)
{
    STATUS_TRY(check_arguments(logits, vocab_size, token, n_top, logprobs, error));
    ranking top = {logprobs->top, 0, n_top};
    float largest;
    STATUS_TRY(find_likeliest(logits, vocab_size, &top, &largest, error));
    double log_sum = log_sum_exp(logits, vocab_size, largest);
    for (int i = 0; i < top.n; i++) top.at[i].logprob = top.at[i].logprob - largest - log_sum;
    logprobs->n_top = top.n;
    logprobs->token = (dsmoe_logprob){token, (double)logits[token] - largest - log_sum};
    return DSMOE_OK;
}

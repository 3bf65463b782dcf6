/* dsmoe/sampler.h - choosing the next token from logits, and how likely tokens are. */
#ifndef DSMOE_SAMPLER_H
#define DSMOE_SAMPLER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logits become a token in these steps:
 *   1. repeat_penalty: for each token among the last repeat_last_n of prompt and text, a logit above 0 is
 *      divided by it, another one multiplied; once, however often the token occurs.
 *   2. presence_penalty is subtracted from the logit of each token in the text, and frequency_penalty once
 *      for each time that the token occurs there. The text is all tokens accepted since the sampler was
 *      created or reset, without the prompt.
 *   3. logit_bias is added; an id that is listed several times gets the sum.
 *   4. At temperature 0 the token with the highest score is taken, and the next steps are skipped.
 *   5. top_k, then top_p, then min_p each drop tokens, by their probabilities at temperature 1.
 *   6. One of the tokens left is drawn at the temperature.
 * Among equal scores, the lower id comes first. A token whose logit is -INFINITY is never taken; a caller can
 * ban a token for one step this way. A NaN or +INFINITY anywhere is an error, and so are logits that leave no
 * token. */
enum { DSMOE_LOGIT_BIAS_BAN = -100, DSMOE_LOGIT_BIAS_MAX = 1024 };
typedef struct dsmoe_logit_bias {
    int32_t id;
    double bias; /* DSMOE_LOGIT_BIAS_BAN or less, down to -INFINITY: never taken */
} dsmoe_logit_bias;

typedef struct dsmoe_sampler_options {
    double temperature;    /* 0: always the likeliest token */
    int64_t top_k;         /* only the k likeliest; 0: all */
    double top_p;          /* only the likeliest that together have this probability; 1: all */
    double min_p;          /* only those at least this share as likely as the likeliest; 0: all */
    double repeat_penalty; /* for recent tokens; 1: none */
    int64_t repeat_last_n; /* how many tokens count as recent */
    uint64_t seed;
    double presence_penalty, frequency_penalty; /* for tokens in the text, -100 to 100; 0: none */
    const dsmoe_logit_bias *logit_bias; /* [n_logit_bias], copied; may be NULL if there are none */
    int64_t n_logit_bias;               /* at most DSMOE_LOGIT_BIAS_MAX */
} dsmoe_sampler_options;
/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalty over the last 64, seed 0, no bias. */
DSMOE_API dsmoe_sampler_options dsmoe_sampler_options_default(void);

/* A sampler belongs to one sequence. Samplers share nothing, so each may have its own thread. */
typedef struct dsmoe_sampler dsmoe_sampler;
DSMOE_API dsmoe_status dsmoe_sampler_create(const dsmoe_sampler_options *options,
                                            int64_t vocab_size, dsmoe_sampler **sampler,
                                            dsmoe_error *error);
DSMOE_API void dsmoe_sampler_free(dsmoe_sampler *sampler);
/* The next token. The same seed, options, logits and history give the same token. */
DSMOE_API dsmoe_status dsmoe_sampler_pick(dsmoe_sampler *sampler, const float *logits,
                                          int32_t *token, dsmoe_error *error);
/* Tells the sampler of a token that was added to the text, picked or not; all penalties use it. */
DSMOE_API void dsmoe_sampler_accept(dsmoe_sampler *sampler, int32_t token);
/* Tells the sampler of tokens of the prompt; only repeat_penalty uses them. */
DSMOE_API void dsmoe_sampler_accept_prompt(dsmoe_sampler *sampler, const int32_t *tokens,
                                           int64_t n_tokens);
/* Forgets prompt and text. The random numbers continue; to restart them, create another sampler with the same
 * seed. */
DSMOE_API void dsmoe_sampler_reset(dsmoe_sampler *sampler);

/* How likely the model finds tokens: natural logarithms of its own probabilities, the softmax of a row of
 * logits before temperature, penalties and biases. */
enum { DSMOE_LOGPROBS_MAX = 20 };
typedef struct dsmoe_logprob {
    int32_t id;
    double logprob; /* at most 0 */
} dsmoe_logprob;
typedef struct dsmoe_logprobs {
    dsmoe_logprob token;                   /* -INFINITY if its logit is */
    int n_top;                             /* fewer than asked for if fewer tokens are possible */
    dsmoe_logprob top[DSMOE_LOGPROBS_MAX]; /* the likeliest first; of equals, the lower id */
} dsmoe_logprobs;
/* Log probabilities of `token`, which may be any of the vocabulary, and of the n_top likeliest, 0 to
 * DSMOE_LOGPROBS_MAX. It is an error if a logit is NaN or +INFINITY, or if all are -INFINITY. Nothing is
 * allocated. */
DSMOE_API dsmoe_status dsmoe_logprobs_compute(const float *logits, int64_t vocab_size,
                                              int32_t token, int n_top, dsmoe_logprobs *logprobs,
                                              dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif

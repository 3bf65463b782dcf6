/* text.h - a running text: a prompt that is read into a sequence, then tokens that are picked one by one, and
 * the bytes of them that can be shown. */
#ifndef DSMOE_SERVE_TEXT_H
#define DSMOE_SERVE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/request.h"
#include "serve/routing_log.h"
#include "text/buffer.h"

typedef struct job job;

typedef enum text_state {
    TEXT_WAITS,  /* for a place */
    TEXT_READS,  /* its prompt */
    TEXT_WRITES, /* token by token */
    TEXT_ENDED,
} text_state;

typedef enum text_end {
    TEXT_END_NONE,   /* it was abandoned */
    TEXT_END_EOS,    /* the model ended it */
    TEXT_END_STOP,   /* a stop text ended it */
    TEXT_END_LENGTH, /* it has max_tokens, or the context is full */
} text_end;

/* A token of an answer; its bytes are those of the text up to `end`. */
typedef struct text_token {
    int32_t id;
    size_t end;
} text_token;

typedef struct text {
    job *job;
    int64_t index; /* among the answer's choices */
    const request_prompt *prompt;
    const struct text *leader; /* has the same prompt and reads it first; NULL: none */
    text_state state;
    text_end end;
    int stop; /* which stop text ended it */

    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    int64_t n_read, n_cached; /* tokens of the prompt: in the sequence; there from the start */
    int64_t max_tokens;
    int64_t n_in_pass; /* tokens of the prompt in the current pass */

    int32_t picked; /* the newest token, not in the sequence yet */
    dsmoe_logprobs picked_logprobs;
    dsmoe_error pick_error;
    text_token *tokens;       /* without the one that ended the text */
    dsmoe_logprobs *logprobs; /* of each token, if requested */
    size_t n_tokens, capacity, logprobs_capacity;
    int64_t n_predicted; /* including one that ended the text */
    byte_buffer bytes;
    size_t shown;               /* bytes that can be shown */
    bool is_told;               /* its part of the answer has begun */
    size_t told, n_tokens_told; /* bytes and tokens already in the answer */
    routing_log routing;        /* if requested */
    byte_buffer routed;         /* its JSON so far, for an answer that is not streamed */
    routing_crowd *crowd;       /* if there are watchers */
    double *embedding;          /* [hidden_size] sums, if requested */
    int64_t n_embedded;

    double queued_at, begun_at, first_at,
        last_at; /* seconds: arrived, got a place, first and last token */
} text;

/* What all texts share. */
typedef struct text_setting {
    dsmoe_engine *engine;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    int64_t n_ids;                    /* ids that can be picked */
    int64_t n_ctx;
    const int32_t *eos; /* tokens that end a text */
    int n_eos;
    double scales[DSMOE_ADAPTERS_MAX]; /* of adapters, for requests that give none */
    routing_shape shape;
} text_setting;

/* Gives a text a sequence and a sampler; then it reads its prompt. */
dsmoe_status text_begin(text *t, const text_setting *setting, dsmoe_error *error);
/* A turn with its next tokens: n of its prompt, or the picked one. */
dsmoe_turn text_turn(text *t, int64_t n);
/* Records the routing of a text. */
dsmoe_routing_fn text_watch;
/* Takes the result of a successful turn with n tokens. */
dsmoe_status text_advance(text *t, const text_setting *setting, int64_t n, double now,
                          dsmoe_error *error);
/* Frees the sequence and the sampler. What the text has written stays. */
void text_leave(text *t);
void text_free(text *t);

#endif

/* text.h - a running text: a prompt on its way into a sequence, then tokens that are picked one by one, and what of
 * them can be shown. */
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
    TEXT_END_NONE,   /* it was given up */
    TEXT_END_EOS,    /* the model ended it */
    TEXT_END_STOP,   /* a stop text did */
    TEXT_END_LENGTH, /* as many tokens as were asked for, or as fit */
} text_end;

/* A token of an answer; its bytes are those of the text up to `end`. */
typedef struct text_token {
    int32_t id;
    size_t end;
} text_token;

typedef struct text {
    job *job;
    int64_t index; /* of the answer's choices */
    const request_prompt *prompt;
    const struct text *leader; /* has the same prompt and reads it first; NULL: none */
    text_state state;
    text_end end;
    int stop; /* which stop text ended it */

    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    int64_t n_read,
        n_cached; /* tokens of the prompt that are in the sequence; that were there before */
    int64_t max_tokens;
    int64_t n_in_pass; /* tokens of the prompt in the pass at hand */

    int32_t picked; /* the newest token, not in the sequence yet */
    dsmoe_logprobs picked_logprobs;
    dsmoe_error pick_error;
    text_token *tokens;       /* without the one that ends a text */
    dsmoe_logprobs *logprobs; /* of each, if they were asked for */
    size_t n_tokens, capacity, logprobs_capacity;
    int64_t n_predicted; /* with the one that ends it */
    byte_buffer bytes;
    size_t shown;               /* bytes that can be shown */
    bool is_told;               /* the answer has begun with it */
    size_t told, n_tokens_told; /* bytes and tokens that the answer has already */
    routing_log routing;        /* if it was asked for */
    byte_buffer routed;         /* what a whole answer will have of it, as JSON */
    routing_crowd *crowd;       /* if someone watches all */
    double *embedding;          /* [hidden_size] sums, if that is what was asked for */
    int64_t n_embedded;

    double queued_at, begun_at, first_at,
        last_at; /* seconds: came, got a place, first and last token */
} text;

/* What a text needs of its surroundings. */
typedef struct text_setting {
    dsmoe_engine *engine;
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    int64_t n_ids;                    /* that can be picked */
    int64_t n_ctx;
    const int32_t *eos; /* tokens that end a text */
    int n_eos;
    double scales[DSMOE_ADAPTERS_MAX]; /* of adapters, where a request says nothing */
    routing_shape shape;
} text_setting;

/* Gives it a sequence and a sampler: from here on it reads. */
dsmoe_status text_begin(text *t, const text_setting *setting, dsmoe_error *error);
/* Its next tokens as a turn: n of its prompt, or the one that was picked. */
dsmoe_turn text_turn(text *t, int64_t n);
/* Sees the routing of a text. */
dsmoe_routing_fn text_watch;
/* The turn went well. */
dsmoe_status text_advance(text *t, const text_setting *setting, int64_t n, double now,
                          dsmoe_error *error);
/* Gives sequence and sampler back; what it has written stays. */
void text_leave(text *t);
void text_free(text *t);

#endif

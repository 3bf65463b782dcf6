/* request.h - what a client asks for: the JSON body of a request as checked values. null means absent; unknown
 * fields are ignored; a known one that cannot be honoured and would change the answer is refused by its name. */
#ifndef DSMOE_SERVE_REQUEST_H
#define DSMOE_SERVE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum {
    REQUEST_MAX_CHOICES = 64, /* n times prompts */
    REQUEST_MAX_STOPS = 16,
    REQUEST_MAX_STOP = 256, /* bytes of one */
    REQUEST_MAX_MESSAGES = 4096,
    REQUEST_MAX_LOGPROBS = 1 << 18, /* of an answer that is not a stream */
    REQUEST_MAX_SCALE = 1000,       /* of an adapter, either way */
};

typedef enum request_kind {
    REQUEST_CHAT,       /* /v1/chat/completions */
    REQUEST_COMPLETION, /* /v1/completions */
    REQUEST_NATIVE,     /* /completion */
    REQUEST_EMBEDDING,  /* /v1/embeddings */
} request_kind;

/* What requests are read against. */
typedef struct request_limits {
    const dsmoe_tokenizer *tokenizer; /* NULL: the model has none, and requests are made of ids */
    const dsmoe_chat_form *chat_form; /* of conversations; NULL without a tokenizer */
    int64_t vocab_size, n_ctx;        /* of the model, of a sequence */
    const char *model;                /* its name */
    dsmoe_sampler_options sampling;   /* where a request says nothing */
    int n_adapters;
} request_limits;

typedef struct request_prompt {
    int32_t *ids;
    size_t n_ids; /* at least 1 */
} request_prompt;

typedef struct request {
    request_kind kind;
    request_prompt
        *prompts; /* each is answered n times; n times n_prompts <= REQUEST_MAX_CHOICES */
    size_t n_prompts;
    int64_t n;
    int64_t max_tokens; /* -1: as many as fit */
    dsmoe_sampler_options sampling;
    dsmoe_logit_bias *biases; /* that `sampling` points to, if the request has any */
    bool has_seed;            /* otherwise the server chooses one */
    char **stops;
    size_t n_stops;
    bool stream, include_usage, timings_per_token;
    bool cache_prompt; /* use pages that earlier texts left (true) */
    bool ignore_eos;
    bool logprobs;
    int n_top_logprobs;
    bool return_tokens; /* /completion: ids beside the text */
    bool routing;       /* each token with the experts that it met */
    bool base64;        /* embeddings: encoding_format */
    bool has_scales;    /* otherwise adapters have the server's */
    double scales[DSMOE_ADAPTERS_MAX];
} request;

/* Why a request is refused: OpenAI's error object. */
typedef struct request_error {
    int status;       /* 400, 404, 413, 501, 503, … */
    const char *type; /* "invalid_request_error", … */
    char param[64];   /* "": none in particular */
    char message[512];
} request_error;
/* Always false, so that refusing is one statement. The message is one line of UTF-8 whatever a client sent. */
bool request_refuse(request_error *error, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Type that belongs to a status. */
const char *request_error_type(int status);
/* {"error": {"message", "type", "code", "param"}}, to be freed; NULL if there is no memory. */
char *request_error_body(const request_error *error);

/* False with *error filled; request_free in any case. */
bool request_read(request *r, request_kind kind, const request_limits *limits, const char *body,
                  size_t length, request_error *error);
void request_free(request *r);

#endif

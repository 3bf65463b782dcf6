/* request.h - the JSON body of a request as checked values. null means absent. Unknown fields are ignored. A
 * known field that is not supported and would change the answer is refused, and the refusal names it. */
#ifndef DSMOE_SERVE_REQUEST_H
#define DSMOE_SERVE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum {
    REQUEST_MAX_CHOICES = 64, /* n times prompts */
    REQUEST_MAX_STOPS = 16,
    REQUEST_MAX_STOP = 256, /* bytes of one stop text */
    REQUEST_MAX_MESSAGES = 4096,
    REQUEST_MAX_LOGPROBS = 1 << 18, /* of an answer that is not streamed */
    REQUEST_MAX_SCALE = 1000,       /* an adapter's scale is from -1000 to 1000 */
};

typedef enum request_kind {
    REQUEST_CHAT,       /* /v1/chat/completions */
    REQUEST_COMPLETION, /* /v1/completions */
    REQUEST_NATIVE,     /* /completion */
    REQUEST_EMBEDDING,  /* /v1/embeddings */
} request_kind;

/* What the server checks requests against. */
typedef struct request_limits {
    const dsmoe_tokenizer *tokenizer; /* NULL: the model has none; requests must use ids */
    const dsmoe_chat_form *chat_form; /* how conversations are framed; NULL without a tokenizer */
    int64_t vocab_size, n_ctx;        /* n_ctx: tokens of a sequence */
    const char *model;                /* its name */
    dsmoe_sampler_options sampling;   /* defaults for omitted fields */
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
    dsmoe_logit_bias *biases; /* sampling.logit_bias, if the request has any */
    bool has_seed;            /* otherwise the server chooses one */
    char **stops;
    size_t n_stops;
    bool stream, include_usage, timings_per_token;
    bool cache_prompt; /* reuse pages that earlier texts left (default: true) */
    bool ignore_eos;
    bool logprobs;
    int n_top_logprobs;
    bool return_tokens; /* /completion: send ids with the text */
    bool routing;       /* send each token with the experts it was routed to */
    bool base64;        /* embeddings: encoding_format is "base64" */
    bool has_scales;    /* otherwise the server's scales apply */
    double scales[DSMOE_ADAPTERS_MAX];
} request;

/* Why a request is refused: OpenAI's error object. */
typedef struct request_error {
    int status;       /* 400, 404, 413, 501, 503, … */
    const char *type; /* "invalid_request_error", … */
    char param[64];   /* "": no single field */
    char message[512];
} request_error;
/* Fills *error and returns false. Bytes that are not printable UTF-8 become '?' in the message. */
bool request_refuse(request_error *error, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* OpenAI's error type for a status. */
const char *request_error_type(int status);
/* {"error": {"message", "type", "code", "param"}}; the caller frees it. NULL if there is no memory. */
char *request_error_body(const request_error *error);

/* On failure returns false and fills *error. Call request_free in any case. */
bool request_read(request *r, request_kind kind, const request_limits *limits, const char *body,
                  size_t length, request_error *error);
void request_free(request *r);

#endif

/* answer.h - answers as JSON: the forms of OpenAI and of llama.cpp, whole or as a stream of events. */
#ifndef DSMOE_SERVE_ANSWER_H
#define DSMOE_SERVE_ANSWER_H

#include <stdio.h>

#include "serve/job.h"

extern const job_writer answer_chat, answer_completion, answer_native, answer_embedding;

/* ---- shared by all forms --------------------------------------------------------------------------- */

/* JSON that is being written. */
typedef struct answer {
    FILE *out; /* NULL: there is no memory */
    char *text;
    size_t length;
} answer;
answer *answer_open(answer *a);
/* Send it as an event of a stream, or as a whole answer; both close it. */
void answer_send_event(answer *a, job *j);
void answer_send_whole(answer *a, http_exchange *exchange, int status);

/* Ends the exchange with an error. */
void answer_refuse(http_exchange *exchange, const request_error *error);
/* Ends the answer of a failed job, of which a part may have been sent. */
void answer_fail(job *j);

/* Bytes and tokens of a text that its answer does not have yet. */
typedef struct answer_news {
    const char *bytes;
    size_t length;
    size_t first_token, n_tokens;
} answer_news;
answer_news answer_take_news(text *t);

/* Write members, each after a comma. */
void answer_put_usage(FILE *out, const job *j);
void answer_put_timings(FILE *out, const text *t);
void answer_put_routing(FILE *out, text *t); /* clears the log */
/* For an answer that is not streamed: moves the log to t->routed, as JSON. */
void answer_keep_routing(job *j, text *t);
/* {"token", "logprob", "bytes", "top_logprobs"} of n tokens, with commas between them. */
void answer_put_logprobs(FILE *out, const text *t, size_t first, size_t n);
double answer_logprob(double logprob);
/* The bytes of a token: "" for special ones. */
const char *answer_piece(const job *j, int32_t id, size_t *length);

#endif

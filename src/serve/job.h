/* job.h - a running request: its texts, and how its answer is written. */
#ifndef DSMOE_SERVE_JOB_H
#define DSMOE_SERVE_JOB_H

#include "serve/http.h"
#include "serve/text.h"

enum { JOB_ID = 48 };

/* How an answer is written; called by the thread that owns the engine. */
typedef struct job_writer {
    /* A text grew, so there may be more of it to send. NULL: nothing is sent before the end. */
    void (*show)(job *j, text *t);
    /* All texts have ended, or `error` says why there is no answer. Ends the exchange. */
    void (*finish)(job *j);
} job_writer;

struct job {
    request request;
    http_exchange *exchange;
    const job_writer *writer;
    const char *model;                /* its name */
    const dsmoe_tokenizer *tokenizer; /* may be NULL */
    int64_t vocab_size, hidden_size;
    char id[JOB_ID];
    int64_t created; /* seconds since 1970 */
    text *texts;     /* the texts of one prompt are adjacent */
    size_t n_texts, n_ended;
    int64_t n_logprobs;  /* of an answer that is not streamed */
    bool begun;          /* the head of the answer has been sent */
    double deadline;     /* seconds on the clock of the scheduler */
    request_error error; /* its status is 0 while there is none */
    job *next;
};

/* Takes over the request. NULL if there is no memory; then the request stays the caller's. */
job *job_create(request *r, http_exchange *exchange, const job_writer *writer);
void job_free(job *j);
/* Sends a comment on a stream, so that proxies and clients do not time out during a long prompt. */
void job_ping(job *j);
/* Sends the head of a stream if it has not been sent. */
void job_begin_stream(job *j);

#endif

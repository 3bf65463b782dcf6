/* job.h - a running request: its texts, and how its answer is written. */
#ifndef DSMOE_SERVE_JOB_H
#define DSMOE_SERVE_JOB_H

#include "serve/http.h"
#include "serve/text.h"

enum { JOB_ID = 48 };

/* How an answer is written; called by the thread that owns the engine. */
typedef struct job_writer {
    /* A text went on: there may be more to show of it. NULL: nothing is shown before the end. */
    void (*show)(job *j, text *t);
    /* All texts are at their end, or `error` says why there is no answer. The exchange is ended here. */
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
    text *texts;     /* those of a prompt beside each other */
    size_t n_texts, n_ended;
    int64_t n_logprobs;  /* of an answer that is kept until its end */
    bool begun;          /* the head of the answer has been sent */
    double deadline;     /* seconds on the clock of the scheduler */
    request_error error; /* its status is 0 as long as all is well */
    job *next;
};

/* Takes the request and the exchange over, whatever happens to them. NULL if there is no memory. */
job *job_create(request *r, http_exchange *exchange, const job_writer *writer);
void job_free(job *j);
/* Sends a comment on a stream, so that proxies and clients do not take a long prompt for silence. */
void job_ping(job *j);
/* The head of a stream, if it has not been sent. */
void job_begin_stream(job *j);

#endif

/* job.c - a running request. */
#include "serve/job.h"

#include <stdlib.h>

job *job_create(request *r, http_exchange *exchange, const job_writer *writer)
{
    job *j = calloc(1, sizeof *j);
    size_t n = r->n_prompts * (size_t)r->n;
    if (j) j->texts = calloc(n, sizeof *j->texts);
    if (!j || !j->texts) {
        free(j);
        return NULL;
    }
    j->request = *r;
    j->exchange = exchange;
    j->writer = writer;
    j->n_texts = n;
    *r = (request){0};
    for (size_t i = 0; i < n; i++) {
        text *t = &j->texts[i];
        size_t prompt = i / (size_t)j->request.n;
        t->job = j;
        t->index = (int64_t)i;
        t->prompt = &j->request.prompts[prompt];
        t->stop = -1;
        if (i % (size_t)j->request.n) t->leader = &j->texts[prompt * (size_t)j->request.n];
    }
    return j;
}

void job_free(job *j)
{
    for (size_t i = 0; i < j->n_texts; i++) text_free(&j->texts[i]);
    free(j->texts);
    request_free(&j->request);
    free(j);
}

void job_begin_stream(job *j)
{
    if (j->begun) return;
    j->begun = true;
    http_begin(j->exchange, 200, "text/event-stream", true);
}

void job_ping(job *j)
{
    static const char comment[] = ":\n\n";
    if (!j->request.stream || http_unsent(j->exchange) > 0) return;
    job_begin_stream(j);
    http_send(j->exchange, comment, sizeof comment - 1);
}

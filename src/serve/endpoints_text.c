/* endpoints_text.c - requests that go through the model: reads them and hands them to the scheduler. */
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "serve/answer.h"
#include "serve/crowd.h"
#include "serve/server_parts.h"

static uint64_t random_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint64_t)time(NULL);
    return number;
}

static void refuse(http_exchange *exchange, request_error *error, int status, const char *message)
{
    request_refuse(error, status, "", "%s", message);
    answer_refuse(exchange, error);
}

static void name_job(const server *s, job *j, const char *prefix)
{
    snprintf(j->id, sizeof j->id, "%s%.32s", prefix, http_id(j->exchange));
    j->model = s->name;
    j->created = (int64_t)time(NULL);
}

/* Hands the request to the scheduler, which answers it. */
static void submit(server *s, request *r, http_exchange *exchange, const job_writer *writer,
                   const char *prefix)
{
    request_error error = {0};
    if (!r->has_seed) r->sampling.seed = random_number();
    job *j = job_create(r, exchange, writer);
    if (!j) {
        request_free(r);
        refuse(exchange, &error, 503, "not enough memory");
        return;
    }
    name_job(s, j, prefix);
    scheduler_answer taken = scheduler_submit(s->scheduler, j);
    if (taken == SCHEDULER_TAKEN) return;
    job_free(j);
    if (taken == SCHEDULER_FULL)
        refuse(exchange, &error, 429, "too many requests are waiting; try again in a moment");
    else
        refuse(exchange, &error, 503, "the server is being stopped");
}

static void read_and_submit(server *s, http_exchange *exchange, request_kind kind,
                            const job_writer *writer, const char *prefix)
{
    size_t length;
    const char *body = http_body(exchange, &length);
    request r;
    request_error error = {0};
    bool good = request_read(&r, kind, &s->limits, body, length, &error);
    if (good) {
        submit(s, &r, exchange, writer, prefix);
        return;
    }
    request_free(&r);
    answer_refuse(exchange, &error);
}

void endpoint_chat(server *s, http_exchange *exchange)
{
    read_and_submit(s, exchange, REQUEST_CHAT, &answer_chat, "chatcmpl-");
}

void endpoint_completions(server *s, http_exchange *exchange)
{
    read_and_submit(s, exchange, REQUEST_COMPLETION, &answer_completion, "cmpl-");
}

void endpoint_native(server *s, http_exchange *exchange)
{
    read_and_submit(s, exchange, REQUEST_NATIVE, &answer_native, "cmpl-");
}

void endpoint_embeddings(server *s, http_exchange *exchange)
{
    read_and_submit(s, exchange, REQUEST_EMBEDDING, &answer_embedding, "embd-");
}

void endpoint_routing(server *s, http_exchange *exchange)
{
    request_error error = {0};
    switch (scheduler_watch(s->scheduler, exchange)) {
    case SCHEDULER_TAKEN: break;
    case SCHEDULER_FULL: crowd_refuse_watcher(exchange); break;
    case SCHEDULER_CLOSED: refuse(exchange, &error, 503, "the server is being stopped"); break;
    }
}

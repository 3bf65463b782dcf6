/* answer_native.c - answers to /completion, in the form of llama.cpp. */
#include "serve/answer.h"

#include <inttypes.h>

#include "formats/json_write.h"

static void put_ids(FILE *out, const text *t, size_t first, size_t n)
{
    fputs(", \"tokens\": [", out);
    for (size_t i = first; t->job->request.return_tokens && i < first + n; i++)
        fprintf(out, "%s%d", i > first ? "," : "", t->tokens[i].id);
    fputc(']', out);
}

static void put_probabilities(FILE *out, const text *t, size_t first, size_t n)
{
    if (!t->job->request.logprobs) return;
    fputs(", \"completion_probabilities\": [", out);
    answer_put_logprobs(out, t, first, n);
    fputc(']', out);
}

static void put_content(FILE *out, const text *t, const answer_news *news)
{
    fprintf(out, "{\"index\": %" PRId64 ", \"content\": ", t->index);
    json_write_text(out, news->bytes, news->length);
    put_ids(out, t, news->first_token, news->n_tokens);
    fprintf(out,
            ", \"id_slot\": -1, \"stop\": %s, \"tokens_predicted\": %" PRId64
            ", \"tokens_evaluated\": %zu",
            t->state == TEXT_ENDED ? "true" : "false", t->n_predicted, t->prompt->n_ids);
    put_probabilities(out, t, news->first_token, news->n_tokens);
}

/* How the text ended, and its timings. */
static void put_end(FILE *out, const text *t)
{
    static const char *const types[] = {[TEXT_END_NONE] = "none",
                                        [TEXT_END_EOS] = "eos",
                                        [TEXT_END_STOP] = "word",
                                        [TEXT_END_LENGTH] = "limit"};
    fputs(", \"model\": ", out);
    json_write_string(out, t->job->model);
    fprintf(out, ", \"stop_type\": \"%s\", \"stopping_word\": ", types[t->end]);
    json_write_string(out, t->stop >= 0 ? t->job->request.stops[t->stop] : "");
    fprintf(out, ", \"tokens_cached\": %" PRId64 ", \"truncated\": false", t->n_cached);
    answer_put_timings(out, t);
}

static void show(job *j, text *t)
{
    if (t->state == TEXT_READS) return;
    if (!j->request.stream) {
        answer_keep_routing(j, t);
        return;
    }
    answer_news news = answer_take_news(t);
    if (news.length == 0 && news.n_tokens == 0 && t->state != TEXT_ENDED && t->routing.n_rows == 0)
        return;
    answer a;
    if (answer_open(&a)->out) {
        put_content(a.out, t, &news);
        if (t->state == TEXT_ENDED) put_end(a.out, t);
        if (j->request.routing) answer_put_routing(a.out, t);
        if (t->state != TEXT_ENDED && j->request.timings_per_token) answer_put_timings(a.out, t);
        fputc('}', a.out);
    }
    answer_send_event(&a, j);
}

static void finish(job *j)
{
    if (j->error.status) {
        answer_fail(j);
        return;
    }
    if (j->request.stream) {
        http_end(j->exchange);
        return;
    }
    answer a;
    bool many = j->n_texts > 1;
    if (answer_open(&a)->out) {
        if (many) fputc('[', a.out);
        for (size_t i = 0; i < j->n_texts; i++) {
            text *t = &j->texts[i];
            answer_news news = answer_take_news(t);
            if (i) fputs(", ", a.out);
            put_content(a.out, t, &news);
            put_end(a.out, t);
            if (j->request.routing) answer_put_routing(a.out, t);
            fputc('}', a.out);
        }
        if (many) fputc(']', a.out);
    }
    answer_send_whole(&a, j->exchange, 200);
}

const job_writer answer_native = {show, finish};

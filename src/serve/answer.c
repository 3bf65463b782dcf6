/* answer.c - functions that all forms of answers share. */
#include "serve/answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_write.h"

static const char json_type[] = "application/json; charset=utf-8";

/* ---- sending ----------------------------------------------------------------------------------- */

answer *answer_open(answer *a)
{
    *a = (answer){0};
    a->out = open_memstream(&a->text, &a->length);
    return a;
}

/* Whether everything could be written. */
static bool answer_close(answer *a)
{
    if (!a->out) return false;
    bool whole = !ferror(a->out);
    return fclose(a->out) == 0 && whole;
}

void answer_send_event(answer *a, job *j)
{
    job_begin_stream(j);
    if (answer_close(a)) {
        http_send(j->exchange, "data: ", 6);
        http_send(j->exchange, a->text, a->length);
        http_send(j->exchange, "\n\n", 2);
    } else {
        request_refuse(&j->error, 503, "", "not enough memory");
    }
    free(a->text);
}

void answer_send_whole(answer *a, http_exchange *exchange, int status)
{
    static const char failed[] =
        "{\"error\": {\"message\": \"not enough memory\", \"type\": \"unavailable_error\", "
        "\"code\": 503, \"param\": null}}";
    if (answer_close(a))
        http_answer(exchange, status, json_type, a->text, a->length);
    else
        http_answer(exchange, 503, json_type, failed, sizeof failed - 1);
    free(a->text);
}

void answer_refuse(http_exchange *exchange, const request_error *error)
{
    char *body = request_error_body(error);
    http_begin(exchange, error->status, json_type, false);
    if (error->status == 429 || error->status == 503) http_add_header(exchange, "Retry-After", "1");
    if (body) http_send(exchange, body, strlen(body));
    free(body);
    http_end(exchange);
}

void answer_fail(job *j)
{
    if (!j->begun) {
        answer_refuse(j->exchange, &j->error);
        return;
    }
    char *body = request_error_body(&j->error);
    if (body) {
        http_send(j->exchange, "data: ", 6);
        http_send(j->exchange, body, strlen(body));
        http_send(j->exchange, "\n\n", 2);
    }
    free(body);
    http_end(j->exchange);
}

/* ---- news -------------------------------------------------------------------------------------- */

answer_news answer_take_news(text *t)
{
    answer_news n = {t->bytes.bytes ? t->bytes.bytes + t->told : "", t->shown - t->told,
                     t->n_tokens_told, 0};
    while (t->n_tokens_told < t->n_tokens && t->tokens[t->n_tokens_told].end <= t->shown)
        t->n_tokens_told++;
    n.n_tokens = t->n_tokens_told - n.first_token;
    t->told = t->shown;
    return n;
}

/* ---- members ----------------------------------------------------------------------------------- */

static void put_time(FILE *out, const char *name, double value)
{
    fprintf(out, ", \"%s\": ", name);
    json_write_number(out, round(value * 1e3) / 1e3);
}

void answer_put_usage(FILE *out, const job *j)
{
    int64_t n_prompt = 0, n_cached = 0, n_written = 0;
    for (size_t i = 0; i < j->n_texts; i++) {
        const text *t = &j->texts[i];
        n_written += t->n_predicted;
        if (t->leader) continue; /* its prompt counts once */
        n_prompt += (int64_t)t->prompt->n_ids;
        n_cached += t->n_cached;
    }
    fprintf(out, ", \"usage\": {\"prompt_tokens\": %" PRId64, n_prompt);
    if (j->request.kind != REQUEST_EMBEDDING)
        fprintf(out, ", \"completion_tokens\": %" PRId64, n_written);
    fprintf(out, ", \"total_tokens\": %" PRId64, n_prompt + n_written);
    if (j->request.kind != REQUEST_EMBEDDING)
        fprintf(out, ", \"prompt_tokens_details\": {\"cached_tokens\": %" PRId64 "}", n_cached);
    fputc('}', out);
}

static double per_second(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

void answer_put_timings(FILE *out, const text *t)
{
    int64_t n_prompt = (int64_t)t->prompt->n_ids - t->n_cached;
    double reading = t->first_at > 0 ? t->first_at - t->begun_at : 0;
    double writing = t->n_predicted > 1 ? t->last_at - t->first_at : 0;
    /* The pass that ends the prompt also gives the first token, so only later ones take writing time. */
    int64_t n_timed = t->n_predicted > 1 ? t->n_predicted - 1 : 0;
    fprintf(out, ", \"timings\": {\"cache_n\": %" PRId64 ", \"prompt_n\": %" PRId64, t->n_cached,
            n_prompt);
    put_time(out, "prompt_ms", 1e3 * reading);
    put_time(out, "prompt_per_second", per_second(n_prompt, reading));
    fprintf(out, ", \"predicted_n\": %" PRId64, t->n_predicted);
    put_time(out, "predicted_ms", 1e3 * writing);
    put_time(out, "predicted_per_second", per_second(n_timed, writing));
    put_time(out, "queue_ms", t->begun_at > 0 ? 1e3 * (t->begun_at - t->queued_at) : 0);
    put_time(out, "ttft_ms", t->first_at > 0 ? 1e3 * (t->first_at - t->queued_at) : 0);
    fputc('}', out);
}

const char *answer_piece(const job *j, int32_t id, size_t *length)
{
    const char *piece = NULL;
    *length = 0;
    if (j->tokenizer && !dsmoe_tokenizer_is_special(j->tokenizer, id))
        piece = dsmoe_tokenizer_piece(j->tokenizer, id, length);
    return piece ? piece : "";
}

double answer_logprob(double logprob)
{
    return isfinite(logprob) ? logprob : -9999.0; /* OpenAI's value for "never" */
}

/* {"token", "logprob", "bytes"} without the brace at the end. */
static void put_logprob(FILE *out, const job *j, const dsmoe_logprob *l)
{
    size_t length;
    const char *piece = answer_piece(j, l->id, &length);
    fputs("{\"token\": ", out);
    json_write_text(out, piece, length);
    fprintf(out, ", \"id\": %d, \"logprob\": ", l->id);
    json_write_number(out, answer_logprob(l->logprob));
    fputs(", \"bytes\": [", out);
    for (size_t i = 0; i < length; i++) fprintf(out, i ? ",%d" : "%d", (unsigned char)piece[i]);
    fputc(']', out);
}

void answer_put_logprobs(FILE *out, const text *t, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        const dsmoe_logprobs *l = &t->logprobs[i];
        if (i > first) fputs(", ", out);
        put_logprob(out, t->job, &l->token);
        fputs(", \"top_logprobs\": [", out);
        for (int k = 0; k < l->n_top; k++) {
            if (k) fputs(", ", out);
            put_logprob(out, t->job, &l->top[k]);
            fputc('}', out);
        }
        fputs("]}", out);
    }
}

/* ---- routing ----------------------------------------------------------------------------------- */

/* The experts of a token and their weights, layer by layer. */
static void put_experts(FILE *out, const routing_log *log, int64_t row)
{
    const routing_shape *s = &log->shape;
    int64_t at = row * s->n_layers * s->k;
    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t i = 0; i < s->k; i++)
            fprintf(out, "%s%d%s",
                    i   ? ","
                    : l ? ",["
                        : "[",
                    log->experts[at + l * s->k + i], i == s->k - 1 ? "]" : "");
    fputs("], \"weights\": [", out);
    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t i = 0; i < s->k; i++) {
            fputs(i ? "," : l ? ",[" : "[", out);
            json_write_number(out, round(1e4 * log->weights[at + l * s->k + i]) / 1e4);
            if (i == s->k - 1) fputc(']', out);
        }
}

static void put_token(FILE *out, const text *t, int64_t position)
{
    int64_t n_prompt = (int64_t)t->prompt->n_ids;
    int32_t id = position < n_prompt ? t->prompt->ids[position] : t->tokens[position - n_prompt].id;
    size_t length = 0;
    const char *piece =
        t->job->tokenizer ? dsmoe_tokenizer_piece(t->job->tokenizer, id, &length) : "";
    fprintf(out, "{\"id\": %d, \"text\": ", id);
    json_write_text(out, piece ? piece : "", length);
    fprintf(out, ", \"position\": %" PRId64 ", \"experts\": [", position);
}

/* Tokens that went through the model since the last call. `first`: there are no others before them. */
static void put_tokens(FILE *out, text *t, bool first)
{
    routing_log *log = &t->routing;
    int64_t end = (int64_t)t->prompt->n_ids + (int64_t)t->n_tokens;
    int64_t n = log->n_rows < end - log->first ? log->n_rows : end - log->first;
    for (int64_t row = 0; row < n; row++, first = false) {
        if (!first) fputs(", ", out);
        put_token(out, t, log->first + row);
        put_experts(out, log, row);
        fputs("]}", out);
    }
    /* The last token of an answer never went through the model. */
    if (t->state == TEXT_ENDED && log->first + n < end) {
        if (!first) fputs(", ", out);
        put_token(out, t, end - 1);
        fputs("], \"weights\": []}", out);
    }
    routing_log_begin(log, t->state == TEXT_ENDED ? end : log->first + log->n_rows);
}

void answer_put_routing(FILE *out, text *t)
{
    if (!t->routing.experts || t->state == TEXT_READS) return;
    fputs(", \"routing\": [", out);
    if (t->routed.bytes) fwrite(t->routed.bytes, 1, t->routed.length, out);
    put_tokens(out, t, t->routed.length == 0);
    fputc(']', out);
}

void answer_keep_routing(job *j, text *t)
{
    answer a;
    dsmoe_error error;
    if (t->state == TEXT_READS || t->routing.n_rows == 0) return;
    if (answer_open(&a)->out) put_tokens(a.out, t, t->routed.length == 0);
    if (!answer_close(&a) || byte_buffer_append(&t->routed, a.text, a.length, &error))
        request_refuse(&j->error, 503, "", "not enough memory");
    free(a.text);
}

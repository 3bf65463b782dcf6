/* answer_openai.c - answers in the form of OpenAI: chat completions, completions and embeddings. */
#include "serve/answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "formats/json_write.h"

/* ---- choices ----------------------------------------------------------------------------------- */

static bool is_chat(const job *j) { return j->request.kind == REQUEST_CHAT; }

static void put_head(FILE *out, const job *j, const char *object)
{
    fprintf(out,
            "{\"id\": \"%s\", \"object\": \"%s\", \"created\": %" PRId64 ", \"model\": ", j->id,
            object, j->created);
    json_write_string(out, j->model);
    fputs(", \"choices\": [", out);
}

static const char *finish_reason(const text *t)
{
    return t->end == TEXT_END_LENGTH ? "\"length\"" : "\"stop\"";
}

static void put_chat_logprobs(FILE *out, const text *t, size_t first, size_t n)
{
    fputs(", \"logprobs\": {\"content\": [", out);
    answer_put_logprobs(out, t, first, n);
    fputs("]}", out);
}

/* A token as the key of an object. Keys must differ, so invalid text is spelt out in bytes. */
static void put_key(FILE *out, const job *j, int32_t id)
{
    size_t length = 0, valid = 0, size = 1;
    const char *piece = j->tokenizer ? dsmoe_tokenizer_piece(j->tokenizer, id, &length) : NULL;
    while (valid < length && size > 0)
        valid += size = utf8_character(piece + valid, length - valid);
    if (length > 0 && valid == length && !memchr(piece, 0, length)) {
        json_write_text(out, piece, length);
        return;
    }
    fputs(length > 0 ? "\"bytes:" : "\"id:", out);
    for (size_t i = 0; i < length; i++) fprintf(out, "\\\\x%02x", (unsigned char)piece[i]);
    if (length == 0) fprintf(out, "%d", id);
    fputc('"', out);
}

static void put_top(FILE *out, const text *t, const dsmoe_logprobs *l)
{
    fputc('{', out);
    for (int k = 0; k < l->n_top; k++) {
        if (k) fputs(", ", out);
        put_key(out, t->job, l->top[k].id);
        fputs(": ", out);
        json_write_number(out, answer_logprob(l->top[k].logprob));
    }
    fputc('}', out);
}

/* Where tokens begin in the text that a client sees, in characters. */
static void put_offsets(FILE *out, const text *t, size_t first, size_t n)
{
    size_t at = 0, n_characters = 0;
    for (size_t i = first; i < first + n; i++) {
        size_t begin = i ? t->tokens[i - 1].end : 0;
        for (size_t size; at < begin; at += size, n_characters++) {
            size = utf8_character(t->bytes.bytes + at, t->bytes.length - at);
            if (size == 0) size = 1; /* an invalid byte is shown as a character */
            if (at + size > begin) break;
        }
        fprintf(out, "%s%zu", i > first ? ", " : "", n_characters);
    }
}

static void put_completion_logprobs(FILE *out, const text *t, size_t first, size_t n)
{
    fputs(", \"logprobs\": {\"tokens\": [", out);
    for (size_t i = first; i < first + n; i++) {
        size_t length;
        const char *piece = answer_piece(t->job, t->tokens[i].id, &length);
        if (i > first) fputs(", ", out);
        json_write_text(out, piece, length);
    }
    fputs("], \"token_logprobs\": [", out);
    for (size_t i = first; i < first + n; i++) {
        if (i > first) fputs(", ", out);
        json_write_number(out, answer_logprob(t->logprobs[i].token.logprob));
    }
    fputs("], \"top_logprobs\": [", out);
    for (size_t i = first; i < first + n; i++) {
        if (i > first) fputs(", ", out);
        put_top(out, t, &t->logprobs[i]);
    }
    fputs("], \"text_offset\": [", out);
    put_offsets(out, t, first, n);
    fputs("]}", out);
}

static void put_logprobs(FILE *out, const text *t, size_t first, size_t n)
{
    if (!t->job->request.logprobs || n == 0)
        fputs(", \"logprobs\": null", out);
    else if (is_chat(t->job))
        put_chat_logprobs(out, t, first, n);
    else
        put_completion_logprobs(out, t, first, n);
}

/* ---- a stream ---------------------------------------------------------------------------------- */

static void put_chunk_head(FILE *out, const job *j)
{
    put_head(out, j, is_chat(j) ? "chat.completion.chunk" : "text_completion");
}

static void send_role(job *j, const text *t)
{
    answer a;
    if (answer_open(&a)->out) {
        put_chunk_head(a.out, j);
        fprintf(a.out,
                "{\"index\": %" PRId64 ", \"delta\": {\"role\": \"assistant\", \"content\": \"\"}, "
                "\"logprobs\": null, \"finish_reason\": null}]}",
                t->index);
    }
    answer_send_event(&a, j);
}

static void put_text(FILE *out, const text *t, const answer_news *news)
{
    fprintf(out, "{\"index\": %" PRId64, t->index);
    fputs(is_chat(t->job) ? ", \"delta\": {\"content\": " : ", \"text\": ", out);
    json_write_text(out, news->bytes, news->length);
    if (is_chat(t->job)) fputc('}', out);
    put_logprobs(out, t, news->first_token, news->n_tokens);
    fputs(", \"finish_reason\": null}", out);
}

static void send_text(job *j, text *t, const answer_news *news)
{
    answer a;
    if (answer_open(&a)->out) {
        put_chunk_head(a.out, j);
        if (news->length > 0 || news->n_tokens > 0) put_text(a.out, t, news);
        fputc(']', a.out);
        if (j->request.routing) answer_put_routing(a.out, t);
        if (j->request.timings_per_token) answer_put_timings(a.out, t);
        fputc('}', a.out);
    }
    answer_send_event(&a, j);
}

static void send_end(job *j, const text *t)
{
    answer a;
    if (answer_open(&a)->out) {
        put_chunk_head(a.out, j);
        fprintf(a.out, "{\"index\": %" PRId64 ", %s, \"logprobs\": null, \"finish_reason\": %s}]",
                t->index, is_chat(j) ? "\"delta\": {}" : "\"text\": \"\"", finish_reason(t));
        answer_put_timings(a.out, t);
        fputc('}', a.out);
    }
    answer_send_event(&a, j);
}

static void show(job *j, text *t)
{
    if (t->state == TEXT_READS) return; /* nothing is written yet */
    if (!j->request.stream) {
        answer_keep_routing(j, t);
        return;
    }
    bool first = !t->is_told;
    t->is_told = true;
    if (first && is_chat(j)) send_role(j, t);
    answer_news news = answer_take_news(t);
    if (news.length > 0 || news.n_tokens > 0 || t->routing.n_rows > 0) send_text(j, t, &news);
    if (t->state == TEXT_ENDED) send_end(j, t);
}

static void finish_stream(job *j)
{
    if (j->request.include_usage) {
        answer a;
        if (answer_open(&a)->out) {
            put_chunk_head(a.out, j);
            fputc(']', a.out);
            answer_put_usage(a.out, j);
            fputc('}', a.out);
        }
        answer_send_event(&a, j);
    }
    http_send(j->exchange, "data: [DONE]\n\n", 14);
    http_end(j->exchange);
}

/* ---- a whole answer ---------------------------------------------------------------------------- */

static void put_choice(FILE *out, const text *t)
{
    fprintf(out, "{\"index\": %" PRId64, t->index);
    fputs(is_chat(t->job) ? ", \"message\": {\"role\": \"assistant\", \"content\": "
                          : ", \"text\": ",
          out);
    json_write_text(out, t->bytes.bytes ? t->bytes.bytes : "", t->bytes.length);
    if (is_chat(t->job)) fputc('}', out);
    put_logprobs(out, t, 0, t->n_tokens);
    fprintf(out, ", \"finish_reason\": %s}", finish_reason(t));
}

static void finish_whole(job *j)
{
    answer a;
    if (answer_open(&a)->out) {
        put_head(a.out, j, is_chat(j) ? "chat.completion" : "text_completion");
        for (size_t i = 0; i < j->n_texts; i++) {
            if (i) fputs(", ", a.out);
            put_choice(a.out, &j->texts[i]);
        }
        fputc(']', a.out);
        answer_put_usage(a.out, j);
        answer_put_timings(a.out, &j->texts[0]);
        if (j->request.routing) answer_put_routing(a.out, &j->texts[0]);
        fputc('}', a.out);
    }
    answer_send_whole(&a, j->exchange, 200);
}

static void finish(job *j)
{
    if (j->error.status)
        answer_fail(j);
    else if (j->request.stream)
        finish_stream(j);
    else
        finish_whole(j);
}

const job_writer answer_chat = {show, finish}, answer_completion = {show, finish};

/* ---- embeddings -------------------------------------------------------------------------------- */

/* The mean over tokens, scaled to length 1. */
static void embedding_of(const text *t, float *to)
{
    int64_t n = t->job->hidden_size;
    double length = 0;
    for (int64_t i = 0; i < n; i++) length += t->embedding[i] * t->embedding[i];
    length = sqrt(length);
    for (int64_t i = 0; i < n; i++) to[i] = (float)(length > 0 ? t->embedding[i] / length : 0);
}

static void put_base64(FILE *out, const unsigned char *bytes, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fputc('"', out);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16;
        if (i + 1 < n) three |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < n) three |= bytes[i + 2];
        fputc(letters[three >> 18], out);
        fputc(letters[three >> 12 & 63], out);
        fputc(i + 1 < n ? letters[three >> 6 & 63] : '=', out);
        fputc(i + 2 < n ? letters[three & 63] : '=', out);
    }
    fputc('"', out);
}

static void put_embedding(FILE *out, const text *t, float *values)
{
    int64_t n = t->job->hidden_size;
    embedding_of(t, values);
    fprintf(out, "{\"object\": \"embedding\", \"index\": %" PRId64 ", \"embedding\": ", t->index);
    if (t->job->request.base64) { /* float32, little-endian like this machine */
        put_base64(out, (const unsigned char *)values, (size_t)n * sizeof *values);
    } else {
        for (int64_t i = 0; i < n; i++) fprintf(out, "%s%.9g", i ? "," : "[", (double)values[i]);
        fputc(']', out);
    }
    fputc('}', out);
}

static void finish_embedding(job *j)
{
    float *values = malloc((size_t)j->hidden_size * sizeof *values);
    if (!values && !j->error.status) request_refuse(&j->error, 503, "", "not enough memory");
    if (j->error.status) {
        free(values);
        answer_fail(j);
        return;
    }
    answer a;
    answer_open(&a);
    if (a.out) {
        fputs("{\"object\": \"list\", \"model\": ", a.out);
        json_write_string(a.out, j->model);
        fputs(", \"data\": [", a.out);
        for (size_t i = 0; i < j->n_texts; i++) {
            if (i) fputs(", ", a.out);
            put_embedding(a.out, &j->texts[i], values);
        }
        fputc(']', a.out);
        answer_put_usage(a.out, j);
        fputc('}', a.out);
    }
    free(values);
    answer_send_whole(&a, j->exchange, 200);
}

const job_writer answer_embedding = {NULL, finish_embedding};

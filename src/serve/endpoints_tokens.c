/* endpoints_tokens.c - converts text to tokens and back: tokenize, detokenize, apply-template. */
#include <stdlib.h>

#include "base/utf8.h"
#include "formats/json.h"
#include "formats/json_write.h"
#include "serve/answer.h"
#include "serve/server_parts.h"

/* ---- reading ----------------------------------------------------------------------------------- */

/* The body as an object; NULL on failure, with *error filled. */
static json_node *read_body(http_exchange *exchange, request_error *error)
{
    size_t length;
    const char *body = http_body(exchange, &length);
    json_node *node;
    dsmoe_error why;
    if (json_node_parse(body, length, "the body", &node, &why)) {
        request_refuse(error, 400, "", "%s", why.message);
        return NULL;
    }
    if (json_node_kind(node) == JSON_KIND_OBJECT) return node;
    request_refuse(error, 400, "", "the body must be an object, not %s",
                   json_kind_name(json_node_kind(node)));
    json_node_free(node);
    return NULL;
}

static const json_node *member(const json_node *body, const char *name)
{
    const json_node *node = json_node_member(body, name);
    return node && json_node_kind(node) != JSON_KIND_NULL ? node : NULL;
}

/* A flag of the body; `otherwise` if it is absent. */
static bool read_flag(const json_node *body, const char *name, bool otherwise, request_error *error)
{
    const json_node *node = member(body, name);
    if (!node) return otherwise;
    if (json_node_kind(node) == JSON_KIND_BOOL) return json_node_bool(node);
    request_refuse(error, 400, name, "%s must be true or false, not %s", name,
                   json_kind_name(json_node_kind(node)));
    return otherwise;
}

static bool has_tokenizer(const server *s, request_error *error)
{
    if (s->served.tokenizer) return true;
    return request_refuse(error, 501, "", "the model has no tokenizer");
}

/* The tokenizer's own message names its file, so the client does not get it. */
static bool refuse_of_tokenizer(request_error *error, const char *param, dsmoe_status status)
{
    if (status == DSMOE_ERROR_MEMORY) return request_refuse(error, 503, "", "not enough memory");
    return request_refuse(error, 400, param, "the tokenizer cannot process %s", param);
}

/* ---- tokenize ---------------------------------------------------------------------------------- */

static void put_piece(FILE *out, const dsmoe_tokenizer *tokenizer, int32_t id)
{
    size_t length = 0, valid = 0;
    const char *piece = dsmoe_tokenizer_piece(tokenizer, id, &length);
    while (valid < length) {
        size_t size = utf8_character(piece + valid, length - valid);
        if (size == 0) break;
        valid += size;
    }
    fprintf(out, "{\"id\": %d, \"piece\": ", id);
    if (valid == length) {
        json_write_text(out, piece, length);
    } else { /* a part of a character */
        for (size_t i = 0; i < length; i++)
            fprintf(out, "%s%d", i ? "," : "[", (unsigned char)piece[i]);
        fputc(']', out);
    }
    fputc('}', out);
}

static void send_tokens(const server *s, http_exchange *exchange, const int32_t *ids, size_t n_ids,
                        bool with_pieces)
{
    answer a;
    if (answer_open(&a)->out) {
        fputs("{\"tokens\": [", a.out);
        for (size_t i = 0; i < n_ids; i++) {
            if (i) fputs(", ", a.out);
            if (with_pieces)
                put_piece(a.out, s->served.tokenizer, ids[i]);
            else
                fprintf(a.out, "%d", ids[i]);
        }
        fputs("]}", a.out);
    }
    answer_send_whole(&a, exchange, 200);
}

static bool tokenize(server *s, http_exchange *exchange, const json_node *body,
                     request_error *error)
{
    const json_node *content = member(body, "content");
    bool bos = read_flag(body, "add_special", false, error);
    bool special = read_flag(body, "parse_special", true, error);
    bool with_pieces = read_flag(body, "with_pieces", false, error);
    if (!content || json_node_kind(content) != JSON_KIND_STRING)
        request_refuse(error, 400, "content", "content must be a string");
    if (error->status || !has_tokenizer(s, error)) return false;
    size_t length, n_ids;
    const char *text_bytes = json_node_string(content, &length);
    int32_t *ids;
    int flags = (bos ? DSMOE_ENCODE_BOS : 0) | (special ? DSMOE_ENCODE_SPECIAL : 0);
    dsmoe_status status =
        dsmoe_tokenizer_encode(s->served.tokenizer, text_bytes, length, flags, &ids, &n_ids, NULL);
    if (status != DSMOE_OK) return refuse_of_tokenizer(error, "content", status);
    send_tokens(s, exchange, ids, n_ids, with_pieces);
    free(ids);
    return true;
}

void endpoint_tokenize(server *s, http_exchange *exchange)
{
    request_error error = {0};
    json_node *body = read_body(exchange, &error);
    if (!body || !tokenize(s, exchange, body, &error)) answer_refuse(exchange, &error);
    json_node_free(body);
}

/* ---- detokenize -------------------------------------------------------------------------------- */

static bool send_text(server *s, http_exchange *exchange, const char *name, const int32_t *ids,
                      size_t n_ids, request_error *error)
{
    char *bytes;
    size_t length;
    dsmoe_status status =
        dsmoe_tokenizer_decode(s->served.tokenizer, ids, n_ids, &bytes, &length, NULL);
    if (status != DSMOE_OK) return refuse_of_tokenizer(error, "tokens", status);
    answer a;
    if (answer_open(&a)->out) {
        fprintf(a.out, "{\"%s\": ", name);
        json_write_text(a.out, bytes, length);
        fputc('}', a.out);
    }
    free(bytes);
    answer_send_whole(&a, exchange, 200);
    return true;
}

/* The caller frees the ids. NULL on failure, with *error filled. */
static int32_t *read_ids(const server *s, const json_node *node, size_t *n_ids,
                         request_error *error)
{
    int64_t end = dsmoe_tokenizer_size(s->served.tokenizer);
    if (!node || json_node_kind(node) != JSON_KIND_ARRAY) {
        request_refuse(error, 400, "tokens", "tokens must be an array of token ids");
        return NULL;
    }
    *n_ids = json_node_count(node);
    int32_t *ids = malloc((*n_ids + 1) * sizeof *ids);
    if (!ids) request_refuse(error, 503, "", "not enough memory");
    for (size_t i = 0; ids && i < *n_ids; i++) {
        const json_node *id = json_node_item(node, i);
        if (json_node_kind(id) != JSON_KIND_INTEGER || json_node_integer(id) < 0 ||
            json_node_integer(id) >= end) {
            request_refuse(error, 400, "tokens", "tokens[%zu] is not a token id", i);
            free(ids);
            return NULL;
        }
        ids[i] = (int32_t)json_node_integer(id);
    }
    return ids;
}

void endpoint_detokenize(server *s, http_exchange *exchange)
{
    request_error error = {0};
    size_t n_ids = 0;
    json_node *body = has_tokenizer(s, &error) ? read_body(exchange, &error) : NULL;
    int32_t *ids = body ? read_ids(s, member(body, "tokens"), &n_ids, &error) : NULL;
    if (!ids || !send_text(s, exchange, "content", ids, n_ids, &error))
        answer_refuse(exchange, &error);
    free(ids);
    json_node_free(body);
}

/* ---- apply-template ---------------------------------------------------------------------------- */

void endpoint_apply_template(server *s, http_exchange *exchange)
{
    request_error error = {0};
    size_t length;
    const char *body = http_body(exchange, &length);
    request r;
    bool good = request_read(&r, REQUEST_CHAT, &s->limits, body, length, &error);
    if (!good || !send_text(s, exchange, "prompt", r.prompts[0].ids, r.prompts[0].n_ids, &error))
        answer_refuse(exchange, &error);
    request_free(&r);
}

/* request_prompt.c - the prompt of a completion and the input of an embedding: texts, token ids, or both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request_parts.h"
#include "text/buffer.h"

enum { PLACE = 64 }; /* bytes of a name such as prompt[3][5] */

/* ---- every kind of prompt -------------------------------------------------------------------- */

bool request_make_prompts(request_reader *q, const char *name, size_t n_prompts)
{
    request *r = q->r;
    if (n_prompts > (size_t)(REQUEST_MAX_CHOICES / r->n))
        return request_refuse(q->error, 400, name,
                              "%s has %zu prompts for %" PRId64 " answers each; a request may have "
                              "at most %d answers",
                              name, n_prompts, r->n, REQUEST_MAX_CHOICES);
    if (r->routing && (r->n != 1 || n_prompts != 1))
        return request_refuse(q->error, 400, "routing",
                              "routing is true for %zu prompts with %" PRId64 " answers each; it "
                              "needs one prompt with one answer",
                              n_prompts, r->n);
    r->prompts = calloc(n_prompts, sizeof *r->prompts);
    if (!r->prompts) return request_refuse_memory(q);
    r->n_prompts = n_prompts;
    return true;
}

bool request_check_text(const request_reader *q, const char *name, size_t n_bytes)
{
    /* No ordinary text has tokens this long on average. A short text is cheap to encode anyway. */
    enum { BYTES_PER_TOKEN = 64, ALWAYS = 1 << 20 };
    if (!q->limits->tokenizer)
        return request_refuse(q->error, 501, name,
                              "%s has text, but the model has no tokenizer: only token ids work",
                              name);
    if (n_bytes <= ALWAYS || (n_bytes - ALWAYS) / BYTES_PER_TOKEN <= (size_t)q->limits->n_ctx)
        return true;
    return request_refuse(q->error, 400, name,
                          "%s is a text of %zu bytes, more than the context of %" PRId64
                          " tokens holds",
                          name, n_bytes, q->limits->n_ctx);
}

bool request_refuse_text(const request_reader *q, const char *name, dsmoe_status status)
{
    /* The tokenizer's own message names its file, so the client does not get it. */
    if (status == DSMOE_ERROR_MEMORY) return request_refuse_memory(q);
    return request_refuse(q->error, 400, name, "%s is a text that the tokenizer cannot encode",
                          name);
}

/* A token must fit after the prompt, unless the client asks for none. */
static bool check_length(const request_reader *q, const char *name, size_t n_ids)
{
    size_t n_ctx = (size_t)q->limits->n_ctx;
    if (n_ids > n_ctx)
        return request_refuse(q->error, 400, name,
                              "the prompt has %zu tokens, more than the context of %zu holds",
                              n_ids, n_ctx);
    if (n_ids == n_ctx && q->r->max_tokens != 0)
        return request_refuse(
            q->error, 400, name,
            "the prompt has %zu tokens, which leaves no room for an answer in the "
            "context of %zu",
            n_ids, n_ctx);
    return true;
}

static bool check_prompt(const request_reader *q, const char *name, const int32_t *ids,
                         size_t n_ids)
{
    if (n_ids == 0)
        return request_refuse(q->error, 400, name,
                              "%s is empty, and the model has no token that begins a text", name);
    if (!check_length(q, name, n_ids)) return false;
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= q->limits->vocab_size)
            return request_refuse(q->error, 400, name,
                                  "%s becomes token %" PRId32 ", which the model does not have",
                                  name, ids[i]);
    return true;
}

bool request_keep_prompt(const request_reader *q, const char *name, int32_t *ids, size_t n_ids,
                         request_prompt *prompt)
{
    if (!check_prompt(q, name, ids, n_ids)) {
        free(ids);
        return false;
    }
    *prompt = (request_prompt){ids, n_ids};
    return true;
}

/* ---- one prompt ------------------------------------------------------------------------------ */

/* In llama.cpp's own form a text may spell special tokens. */
static int encode_flags(const request_reader *q)
{
    return q->r->kind == REQUEST_NATIVE ? DSMOE_ENCODE_SPECIAL : 0;
}

static bool read_text(const request_reader *q, const char *name, const json_node *node,
                      request_prompt *prompt)
{
    size_t length, n_ids;
    const char *text = json_node_string(node, &length);
    int32_t *ids;
    if (!request_check_text(q, name, length)) return false;
    dsmoe_status status = dsmoe_tokenizer_encode(
        q->limits->tokenizer, text, length, encode_flags(q) | DSMOE_ENCODE_BOS, &ids, &n_ids, NULL);
    if (status != DSMOE_OK) return request_refuse_text(q, name, status);
    return request_keep_prompt(q, name, ids, n_ids, prompt);
}

static bool append_id(const request_reader *q, const char *place, const json_node *node,
                      id_buffer *ids)
{
    int64_t id;
    if (!request_is_integer(node, &id) || id < 0 || id >= q->limits->vocab_size) {
        char must[64];
        snprintf(must, sizeof must, "the id of a token, from 0 to %" PRId64,
                 q->limits->vocab_size - 1);
        return request_refuse_value(q, place, node, must);
    }
    return id_buffer_append(ids, (int32_t)id, NULL) == DSMOE_OK || request_refuse_memory(q);
}

/* A text among ids. Only the first item gets BOS. */
static bool append_text(const request_reader *q, const char *place, const json_node *node,
                        bool first, id_buffer *ids)
{
    size_t length, n_more;
    const char *text = json_node_string(node, &length);
    int32_t *more;
    if (!request_check_text(q, place, length)) return false;
    dsmoe_status status = dsmoe_tokenizer_encode(q->limits->tokenizer, text, length,
                                                 encode_flags(q) | (first ? DSMOE_ENCODE_BOS : 0),
                                                 &more, &n_more, NULL);
    for (size_t i = 0; status == DSMOE_OK && i < n_more; i++)
        status = id_buffer_append(ids, more[i], NULL);
    free(more);
    return status == DSMOE_OK || request_refuse_text(q, place, status);
}

/* Only llama.cpp's own form may have texts among ids. */
static bool is_text(const request_reader *q, const json_node *item)
{
    return q->r->kind == REQUEST_NATIVE && json_node_kind(item) == JSON_KIND_STRING;
}

static bool has_text(const request_reader *q, const json_node *array)
{
    for (size_t i = 0; i < json_node_count(array); i++)
        if (is_text(q, json_node_item(array, i))) return true;
    return false;
}

static bool append_items(const request_reader *q, const char *name, const json_node *array,
                         id_buffer *ids)
{
    size_t count = json_node_count(array), n_ctx = (size_t)q->limits->n_ctx;
    for (size_t i = 0; i < count; i++) {
        const json_node *item = json_node_item(array, i);
        char place[PLACE];
        snprintf(place, sizeof place, "%.32s[%zu]", name, i);
        bool text = is_text(q, item);
        if (text && i > 0 && request_is_string(item, "")) continue;
        if (!(text ? append_text(q, place, item, i == 0, ids) : append_id(q, place, item, ids)))
            return false;
        if (ids->count > n_ctx && i + 1 < count) /* no need to encode the rest */
            return request_refuse(q->error, 400, name,
                                  "the prompt has %zu tokens and %zu more items, more than the "
                                  "context of %zu holds",
                                  ids->count, count - i - 1, n_ctx);
    }
    return true;
}

static bool read_items(const request_reader *q, const char *name, const json_node *array,
                       request_prompt *prompt)
{
    if (json_node_count(array) == 0)
        return request_refuse_value(q, name, array, "an array of at least one token");
    if (!has_text(q, array) && !check_length(q, name, json_node_count(array))) return false;
    id_buffer ids = {0};
    if (!append_items(q, name, array, &ids)) {
        id_buffer_free(&ids);
        return false;
    }
    return request_keep_prompt(q, name, ids.ids, ids.count, prompt);
}

static bool read_prompt(const request_reader *q, const char *name, const json_node *node,
                        request_prompt *prompt)
{
    switch (json_node_kind(node)) {
    case JSON_KIND_STRING: return read_text(q, name, node, prompt);
    case JSON_KIND_ARRAY: return read_items(q, name, node, prompt);
    default: return request_refuse_value(q, name, node, "a string or an array of token ids");
    }
}

/* ---- all prompts ----------------------------------------------------------------------------- */

/* An array with a number in it is one prompt. In any other array each item is a prompt. */
static bool is_one_prompt(const json_node *node)
{
    double number;
    if (json_node_kind(node) != JSON_KIND_ARRAY) return true;
    for (size_t i = 0; i < json_node_count(node); i++)
        if (request_is_number(json_node_item(node, i), &number)) return true;
    return json_node_count(node) == 0;
}

bool request_read_prompts(request_reader *q)
{
    const char *name = q->r->kind == REQUEST_EMBEDDING ? "input" : "prompt";
    const json_node *node = request_member(q->root, name);
    if (!node)
        return request_refuse(q->error, 400, name, "%s is missing; it must be a string or an array",
                              name);
    bool one = is_one_prompt(node);
    if (!request_make_prompts(q, name, one ? 1 : json_node_count(node))) return false;
    if (one) return read_prompt(q, name, node, &q->r->prompts[0]);
    for (size_t i = 0; i < q->r->n_prompts; i++) {
        char place[PLACE];
        snprintf(place, sizeof place, "%s[%zu]", name, i);
        if (!read_prompt(q, place, json_node_item(node, i), &q->r->prompts[i])) return false;
    }
    return true;
}

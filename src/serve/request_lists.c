/* request_lists.c - texts that end an answer, and biases of tokens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request_parts.h"

/* ---- stop ------------------------------------------------------------------------------------ */

static bool add_stop(request_reader *q, const char *name, const json_node *node)
{
    if (json_node_kind(node) != JSON_KIND_STRING)
        return request_refuse_value(q, name, node, "a string");
    size_t length;
    const char *text = json_node_string(node, &length);
    if (length == 0 || length > REQUEST_MAX_STOP)
        return request_refuse(q->error, 400, name,
                              "%s is a text of %zu bytes; it must have 1 to %d", name, length,
                              REQUEST_MAX_STOP);
    char *copy = strdup(text);
    if (!copy) return request_refuse_memory(q);
    q->r->stops[q->r->n_stops++] = copy;
    return true;
}

bool request_read_stops(request_reader *q)
{
    const json_node *node = request_member(q->root, "stop");
    if (!node) return true;
    bool single = json_node_kind(node) == JSON_KIND_STRING;
    if (!single && json_node_kind(node) != JSON_KIND_ARRAY)
        return request_refuse_value(q, "stop", node, "a string or an array of strings");
    size_t count = single ? 1 : json_node_count(node);
    if (count > REQUEST_MAX_STOPS)
        return request_refuse(q->error, 400, "stop",
                              "stop is an array of %zu; it must have at most %d", count,
                              REQUEST_MAX_STOPS);
    if (count == 0) return true;
    q->r->stops = calloc(count, sizeof *q->r->stops);
    if (!q->r->stops) return request_refuse_memory(q);
    if (single) return add_stop(q, "stop", node);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "stop[%zu]", i);
        if (!add_stop(q, name, json_node_item(node, i))) return false;
    }
    return true;
}

/* ---- logit_bias ------------------------------------------------------------------------------ */

static const char bias_name[] = "logit_bias";

/* A number; false bans the token. */
static bool read_bias_value(const request_reader *q, const json_node *node, double *bias)
{
    if (json_node_kind(node) == JSON_KIND_BOOL && !json_node_bool(node)) {
        *bias = DSMOE_LOGIT_BIAS_BAN;
        return true;
    }
    if (request_is_number(node, bias) && *bias >= DSMOE_LOGIT_BIAS_BAN &&
        *bias <= -DSMOE_LOGIT_BIAS_BAN)
        return true;
    char value[REQUEST_VALUE_TEXT];
    return request_refuse(q->error, 400, bias_name,
                          "%s has the value %s; values must be numbers from %d to %d, or false",
                          bias_name, request_describe(node, value), DSMOE_LOGIT_BIAS_BAN,
                          -DSMOE_LOGIT_BIAS_BAN);
}

static bool add_bias(request_reader *q, int64_t id, const json_node *value)
{
    dsmoe_sampler_options *o = &q->r->sampling;
    dsmoe_logit_bias *bias = &q->r->biases[o->n_logit_bias];
    if (id < 0 || id >= q->limits->vocab_size)
        return request_refuse(q->error, 400, bias_name,
                              "%s names token %" PRId64 "; ids must be from 0 to %" PRId64,
                              bias_name, id, q->limits->vocab_size - 1);
    if (!read_bias_value(q, value, &bias->bias)) return false;
    bias->id = (int32_t)id;
    o->n_logit_bias++;
    return true;
}

/* A member of {"id": value, …}. */
static dsmoe_status add_member(void *context, const char *key, const json_node *value,
                               dsmoe_error *error)
{
    (void)error;
    request_reader *q = context;
    enum { MAX_DIGITS = 18 };
    size_t n_digits = strspn(key, "0123456789");
    if (key[n_digits] == '\0' && n_digits > 0 && n_digits <= MAX_DIGITS)
        return add_bias(q, strtoll(key, NULL, 10), value) ? DSMOE_OK : DSMOE_ERROR_ARGUMENT;
    request_refuse(q->error, 400, bias_name, "%s names \"%.48s\"; keys must be token ids",
                   bias_name, key);
    return DSMOE_ERROR_ARGUMENT;
}

/* An item of [[id, value], …]. */
static bool add_pair(request_reader *q, size_t index, const json_node *pair)
{
    int64_t id;
    bool good = json_node_kind(pair) == JSON_KIND_ARRAY && json_node_count(pair) == 2 &&
                request_is_integer(json_node_item(pair, 0), &id);
    if (good) return add_bias(q, id, json_node_item(pair, 1));
    char value[REQUEST_VALUE_TEXT];
    return request_refuse(q->error, 400, bias_name,
                          "%s[%zu] is %s; it must be a pair of a token's id and a number",
                          bias_name, index, request_describe(pair, value));
}

bool request_read_biases(request_reader *q)
{
    const json_node *node = request_member(q->root, bias_name);
    if (!node) return true;
    json_kind kind = json_node_kind(node);
    if (kind != JSON_KIND_OBJECT && kind != JSON_KIND_ARRAY)
        return request_refuse_value(q, bias_name, node, "an object or an array of pairs");
    size_t count = json_node_count(node);
    if (count > DSMOE_LOGIT_BIAS_MAX)
        return request_refuse(q->error, 400, bias_name,
                              "%s has %zu tokens; at most %d may be biased", bias_name, count,
                              DSMOE_LOGIT_BIAS_MAX);
    q->r->sampling.logit_bias = NULL;
    q->r->sampling.n_logit_bias = 0;
    if (count == 0) return true;
    q->r->biases = calloc(count, sizeof *q->r->biases);
    if (!q->r->biases) return request_refuse_memory(q);
    q->r->sampling.logit_bias = q->r->biases;
    if (kind == JSON_KIND_OBJECT) return json_node_each(node, add_member, q, NULL) == DSMOE_OK;
    for (size_t i = 0; i < count; i++)
        if (!add_pair(q, i, json_node_item(node, i))) return false;
    return true;
}

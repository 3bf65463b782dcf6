/* request_fields.c - numbers and flags of a request. */
#include <float.h>
#include <inttypes.h>
#include <stddef.h>

#include "serve/request_parts.h"

/* ---- sampling -------------------------------------------------------------------------------- */

static bool read_sampling_numbers(request_reader *q)
{
    static const struct {
        const char *name;
        size_t offset;
        double min, max;
    } numbers[] = {
        {"temperature", offsetof(dsmoe_sampler_options, temperature), 0, 100},
        {"top_p", offsetof(dsmoe_sampler_options, top_p), 0, 1},
        {"min_p", offsetof(dsmoe_sampler_options, min_p), 0, 1},
        {"presence_penalty", offsetof(dsmoe_sampler_options, presence_penalty), -100, 100},
        {"frequency_penalty", offsetof(dsmoe_sampler_options, frequency_penalty), -100, 100},
    };
    char *options = (char *)&q->r->sampling;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!request_read_number(q, numbers[i].name, numbers[i].min, numbers[i].max,
                                 (double *)(void *)(options + numbers[i].offset)))
            return false;
    return true;
}

static bool read_repeat_penalty(request_reader *q)
{
    const json_node *node = request_member(q->root, "repeat_penalty");
    double *value = &q->r->sampling.repeat_penalty;
    if (!node || (request_is_number(node, value) && *value >= FLT_MIN && *value <= FLT_MAX))
        return true;
    return request_refuse_value(q, "repeat_penalty", node, "a number above 0");
}

/* A client's -1 means no limit. For the sampler that is a top_k of 0 and a repeat_last_n of n_ctx. */
static bool read_sampling_counts(request_reader *q)
{
    dsmoe_sampler_options *o = &q->r->sampling;
    if (!request_read_integer(q, "top_k", -1, INT32_MAX, &o->top_k)) return false;
    if (o->top_k == -1) o->top_k = 0;
    if (!request_read_integer(q, "repeat_last_n", -1, INT32_MAX, &o->repeat_last_n)) return false;
    if (o->repeat_last_n == -1 || o->repeat_last_n > q->limits->n_ctx)
        o->repeat_last_n = q->limits->n_ctx;
    return true;
}

static bool read_seed(request_reader *q)
{
    int64_t seed = -1;
    if (!request_read_integer(q, "seed", INT64_MIN, INT64_MAX, &seed)) return false;
    q->r->has_seed = seed != -1;
    if (q->r->has_seed) q->r->sampling.seed = (uint64_t)seed;
    return true;
}

/* ---- length and form of the answer ----------------------------------------------------------- */

/* Clients use different names for the same limit. */
static bool read_max_tokens(request_reader *q)
{
    static const struct {
        const char *name;
        int64_t min;
    } names[] = {{"max_tokens", 0}, {"max_completion_tokens", 0}, {"n_predict", -1}};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i].name;
        int64_t value;
        if (!request_member(q->root, name)) continue;
        if (!request_read_integer(q, name, names[i].min, INT64_C(1) << 31, &value)) return false;
        if (first && value != q->r->max_tokens)
            return request_refuse(q->error, 400, name,
                                  "%s is %" PRId64 ", but %s is %" PRId64
                                  "; they mean the same and must be equal",
                                  name, value, first, q->r->max_tokens);
        first = name;
        q->r->max_tokens = value;
    }
    return true;
}

static bool read_flags(request_reader *q)
{
    static const struct {
        const char *name;
        size_t offset;
    } flags[] = {
        {"stream", offsetof(request, stream)},
        {"timings_per_token", offsetof(request, timings_per_token)},
        {"cache_prompt", offsetof(request, cache_prompt)},
        {"ignore_eos", offsetof(request, ignore_eos)},
        {"return_tokens", offsetof(request, return_tokens)},
        {"routing", offsetof(request, routing)},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool *flag = (bool *)((char *)q->r + flags[i].offset);
        if (!request_read_flag(q, flags[i].name, flag)) return false;
    }
    return true;
}

static bool read_stream_options(request_reader *q)
{
    static const char name[] = "stream_options", usage[] = "stream_options.include_usage";
    const json_node *options = request_member(q->root, name);
    if (!options) return true;
    if (json_node_kind(options) != JSON_KIND_OBJECT)
        return request_refuse_value(q, name, options, "an object");
    if (!q->r->stream)
        return request_refuse(q->error, 400, name, "%s is given; it needs \"stream\": true", name);
    const json_node *node = request_member(options, "include_usage");
    if (node && json_node_kind(node) != JSON_KIND_BOOL)
        return request_refuse_value(q, usage, node, "true or false");
    q->r->include_usage = node && json_node_bool(node);
    return true;
}

/* ---- logprobs -------------------------------------------------------------------------------- */

static bool read_chat_logprobs(request_reader *q)
{
    static const char name[] = "top_logprobs";
    if (!request_read_flag(q, "logprobs", &q->r->logprobs)) return false;
    if (!request_member(q->root, name)) return true;
    int64_t n_top = 0;
    if (!request_read_integer(q, name, 0, DSMOE_LOGPROBS_MAX, &n_top)) return false;
    if (!q->r->logprobs)
        return request_refuse(q->error, 400, name, "%s is %" PRId64 "; it needs \"logprobs\": true",
                              name, n_top);
    q->r->n_top_logprobs = (int)n_top;
    return true;
}

/* The number of alternatives. For OpenAI's `logprobs`, 0 still asks for the chosen token's own logprob. */
static bool read_logprobs(request_reader *q)
{
    if (q->r->kind == REQUEST_CHAT) return read_chat_logprobs(q);
    bool native = q->r->kind == REQUEST_NATIVE;
    const char *name = native ? "n_probs" : "logprobs";
    int64_t n_top = 0;
    if (!request_read_integer(q, name, 0, DSMOE_LOGPROBS_MAX, &n_top)) return false;
    q->r->logprobs = native ? n_top > 0 : request_member(q->root, name) != NULL;
    q->r->n_top_logprobs = (int)n_top;
    return true;
}

/* ---- all fields ------------------------------------------------------------------------------ */

/* Any name is accepted, as the server has only one model. */
static bool read_model(request_reader *q)
{
    const json_node *node = request_member(q->root, "model");
    if (!node || json_node_kind(node) == JSON_KIND_STRING) return true;
    return request_refuse_value(q, "model", node, "a string");
}

static bool read_encoding_format(request_reader *q)
{
    static const char name[] = "encoding_format";
    const json_node *node = request_member(q->root, name);
    if (!node || request_is_string(node, "float")) return true;
    q->r->base64 = request_is_string(node, "base64");
    return q->r->base64 || request_refuse_value(q, name, node, "\"float\" or \"base64\"");
}

bool request_read_fields(request_reader *q)
{
    if (!read_model(q)) return false;
    if (!request_read_lora(q)) return false;
    if (q->r->kind == REQUEST_EMBEDDING) return read_encoding_format(q);
    return request_read_integer(q, "n", 1, REQUEST_MAX_CHOICES, &q->r->n) && read_max_tokens(q) &&
           read_sampling_numbers(q) && read_repeat_penalty(q) && read_sampling_counts(q) &&
           read_seed(q) && request_read_biases(q) && request_read_stops(q) && read_flags(q) &&
           read_stream_options(q) && read_logprobs(q);
}

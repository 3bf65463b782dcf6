/* request.c - reads a body into a request: parses it, checks its fields, refuses unsupported ones, and only
 * then encodes its texts, which is the part that takes time. */
#include "serve/request.h"

#include <stdlib.h>

#include "serve/request_parts.h"

static request defaults(request_kind kind, const request_limits *limits)
{
    return (request){
        .kind = kind,
        .n = 1,
        .max_tokens = kind == REQUEST_EMBEDDING ? 0 : -1,
        .sampling = limits->sampling,
        .cache_prompt = true,
    };
}

/* An integer beyond int64 becomes a real, so that its field can refuse it by name, or ignore it. A body is
 * parsed that way only if it has such integers, as reals lose digits. */
static bool parse(const char *body, size_t length, json_node **root, request_error *error)
{
    dsmoe_error reason;
    dsmoe_status status = json_node_parse(body, length, "the body", root, &reason);
    if (status == DSMOE_ERROR_FORMAT) {
        dsmoe_status wide = json_node_parse_wide(body, length, "the body", root, NULL);
        if (wide != DSMOE_ERROR_FORMAT) status = wide;
    }
    if (status == DSMOE_ERROR_MEMORY) return request_refuse(error, 503, "", "not enough memory");
    return status == DSMOE_OK || request_refuse(error, 400, "", "%s", reason.message);
}

static bool read_root(request_reader *q)
{
    if (json_node_kind(q->root) != JSON_KIND_OBJECT)
        return request_refuse(q->error, 400, "", "the body is %s; it must be an object",
                              json_kind_name(json_node_kind(q->root)));
    if (!request_read_fields(q) || !request_check_refused(q)) return false;
    return q->r->kind == REQUEST_CHAT ? request_read_messages(q) : request_read_prompts(q);
}

bool request_read(request *r, request_kind kind, const request_limits *limits, const char *body,
                  size_t length, request_error *error)
{
    *r = defaults(kind, limits);
    *error = (request_error){0};
    json_node *root;
    if (!parse(body, length, &root, error)) return false;
    request_reader q = {.root = root, .limits = limits, .r = r, .error = error};
    bool good = read_root(&q);
    json_node_free(root);
    return good;
}

void request_free(request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) free(r->prompts[i].ids);
    for (size_t i = 0; i < r->n_stops; i++) free(r->stops[i]);
    free(r->prompts);
    free(r->stops);
    free(r->biases);
    *r = (request){0};
}

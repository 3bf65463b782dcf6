/* request_lora.c - adapters that a request asks for, as in llama.cpp: [{"id": 0, "scale": 0.5}, …]. */
#include <inttypes.h>
#include <stdio.h>

#include "serve/request_parts.h"

static const char lora_name[] = "lora";

static bool read_item(const json_node *item, int n_adapters, bool *seen, double *scales,
                      request_error *error)
{
    int64_t id = -1;
    double scale = 0;
    bool is_object = json_node_kind(item) == JSON_KIND_OBJECT;
    const json_node *id_node = is_object ? request_member(item, "id") : NULL;
    const json_node *scale_node = is_object ? request_member(item, "scale") : NULL;
    char value[REQUEST_VALUE_TEXT];
    if (!id_node || !scale_node || !request_is_integer(id_node, &id))
        return request_refuse(
            error, 400, lora_name,
            "%s contains %s; each item must be an object with \"id\" and \"scale\"", lora_name,
            request_describe(item, value));
    if (id < 0 || id >= n_adapters)
        return request_refuse(error, 400, lora_name,
                              "%s names adapter %" PRId64 "; ids are 0 to %d", lora_name, id,
                              n_adapters - 1);
    if (!request_is_number(scale_node, &scale) || scale < -REQUEST_MAX_SCALE ||
        scale > REQUEST_MAX_SCALE)
        return request_refuse(
            error, 400, lora_name, "%s has the scale %s; it must be a number from %d to %d",
            lora_name, request_describe(scale_node, value), -REQUEST_MAX_SCALE, REQUEST_MAX_SCALE);
    if (seen[id])
        return request_refuse(error, 400, lora_name, "%s names adapter %" PRId64 " twice",
                              lora_name, id);
    seen[id] = true;
    scales[id] = scale;
    return true;
}

bool request_read_scales(const json_node *list, int n_adapters, double *scales,
                         request_error *error)
{
    bool seen[DSMOE_ADAPTERS_MAX] = {false};
    char value[REQUEST_VALUE_TEXT];
    if (json_node_kind(list) != JSON_KIND_ARRAY)
        return request_refuse(error, 400, lora_name, "%s is %s; it must be an array", lora_name,
                              request_describe(list, value));
    if (n_adapters == 0 && json_node_count(list) > 0)
        return request_refuse(error, 501, lora_name,
                              "%s is %s, which is not supported: there are no adapters", lora_name,
                              request_describe(list, value));
    for (int i = 0; i < n_adapters; i++) scales[i] = 0;
    for (size_t i = 0; i < json_node_count(list); i++)
        if (!read_item(json_node_item(list, i), n_adapters, seen, scales, error)) return false;
    return true;
}

bool request_read_lora(request_reader *q)
{
    const json_node *list = request_member(q->root, lora_name);
    if (!list) return true;
    q->r->has_scales = true;
    return request_read_scales(list, q->limits->n_adapters, q->r->scales, q->error);
}

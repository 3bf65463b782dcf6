/* endpoints_lora.c - the list of adapters, and their scales for requests that give none. */
#include <stdlib.h>

#include "formats/json_write.h"
#include "serve/answer.h"
#include "serve/request_parts.h"
#include "serve/server_parts.h"

void endpoint_lora(server *s, http_exchange *exchange)
{
    const dsmoe_engine_options *o = &s->served.adapters;
    double scales[DSMOE_ADAPTERS_MAX];
    scheduler_scales(s->scheduler, scales);
    answer a;
    answer_open(&a);
    if (a.out) fputc('[', a.out);
    for (int i = 0; a.out && i < o->n_adapters; i++) {
        const char *path = dsmoe_adapter_get_info(o->adapters[i]).path;
        fprintf(a.out, "%s{\"id\": %d, \"path\": ", i ? ", " : "", i);
        json_write_string(a.out, path);
        fputs(", \"scale\": ", a.out);
        json_write_number(a.out, scales[i]);
        fputc('}', a.out);
    }
    if (a.out) fputc(']', a.out);
    answer_send_whole(&a, exchange, 200);
}

static bool read_body(const server *s, http_exchange *exchange, double *scales,
                      request_error *error)
{
    size_t length;
    const char *body = http_body(exchange, &length);
    json_node *list;
    dsmoe_error why;
    if (json_node_parse(body, length, "the body", &list, &why))
        return request_refuse(error, 400, "", "%s", why.message);
    bool good = request_read_scales(list, s->served.adapters.n_adapters, scales, error);
    json_node_free(list);
    return good;
}

/* Adapters that the list does not name get the scale 0. */
void endpoint_set_lora(server *s, http_exchange *exchange)
{
    double scales[DSMOE_ADAPTERS_MAX] = {0};
    request_error error = {0};
    if (!read_body(s, exchange, scales, &error)) {
        answer_refuse(exchange, &error);
        return;
    }
    scheduler_set_scales(s->scheduler, scales);
    answer a;
    if (answer_open(&a)->out) fputs("{\"success\": true}", a.out);
    answer_send_whole(&a, exchange, 200);
}

/* crowd.c - clients that watch how all texts together use the experts. */
#include "serve/crowd.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/json_write.h"
#include "serve/answer.h"

static const double interval = 0.1, silence = 10; /* seconds between events, comments */
enum { MAX_UNSENT = 1 << 20 };

bool crowd_create(crowd *c, const routing_shape *shape)
{
    *c = (crowd){0};
    return routing_crowd_create(&c->sums, shape);
}

void crowd_dismiss(crowd *c)
{
    while (c->n_watchers > 0) http_end(c->watchers[--c->n_watchers]);
}

void crowd_free(crowd *c)
{
    crowd_dismiss(c);
    routing_crowd_free(&c->sums);
}

void crowd_refuse_watcher(http_exchange *exchange)
{
    request_error error = {0};
    request_refuse(&error, 503, "", "%d clients are watching already", CROWD_MAX_WATCHERS);
    answer_refuse(exchange, &error);
}

static void drop_lost(crowd *c)
{
    int kept = 0;
    for (int i = 0; i < c->n_watchers; i++) {
        http_exchange *w = c->watchers[i];
        if (http_alive(w))
            c->watchers[kept++] = w;
        else
            http_end(w);
    }
    c->n_watchers = kept;
}

void crowd_add_watcher(crowd *c, http_exchange *exchange)
{
    drop_lost(c);
    if (c->n_watchers == CROWD_MAX_WATCHERS) {
        crowd_refuse_watcher(exchange);
        return;
    }
    if (c->n_watchers == 0) routing_crowd_clear(&c->sums);
    c->watchers[c->n_watchers++] = exchange;
    http_begin(exchange, 200, "text/event-stream", true);
    http_send(exchange, ":\n\n", 3); /* so that the client sees that it is connected */
}

void crowd_end_pass(crowd *c, int64_t n_rows)
{
    if (c->n_watchers > 0) routing_crowd_end_pass(&c->sums, n_rows);
}

static void write_event(const crowd *c, double now, FILE *out)
{
    const routing_crowd *r = &c->sums;
    fputs("data: {\"time\": ", out);
    json_write_number(out, round(now * 1e3) / 1e3);
    fprintf(out,
            ", \"passes\": %" PRId64 ", \"rows\": %" PRId64 ", \"running\": %" PRId64
            ", \"waiting\": %" PRId64 ", \"distinct\": [",
            r->n_passes, r->n_rows, c->n_running, c->n_waiting);
    for (int64_t l = 0; l < r->shape.n_layers; l++) {
        if (l) fputc(',', out);
        json_write_number(out, round(10 * r->distinct[l] / (double)r->n_passes) / 10);
    }
    fputs("], \"load\": [", out);
    for (int64_t l = 0; l < r->shape.n_layers; l++) {
        fputs(l ? ",[" : "[", out);
        for (int64_t e = 0; e < r->shape.n_experts; e++) {
            if (e) fputc(',', out);
            json_write_number(out, round(1e3 * r->load[l * r->shape.n_experts + e]) / 1e3);
        }
        fputc(']', out);
    }
    fputs("]}\n\n", out);
}

static void send_to_all(crowd *c, const char *bytes, size_t length)
{
    drop_lost(c);
    for (int i = 0; i < c->n_watchers; i++)
        if (http_unsent(c->watchers[i]) < MAX_UNSENT) /* slow clients miss events */
            http_send(c->watchers[i], bytes, length);
}

void crowd_tell(crowd *c, double now)
{
    if (c->n_watchers == 0 || now - c->told_at < interval) return;
    if (c->sums.n_passes == 0) {
        if (now - c->told_at < silence) return;
        c->told_at = now;
        send_to_all(c, ":\n\n", 3);
        return;
    }
    char *event = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&event, &length);
    c->told_at = now;
    if (out) {
        write_event(c, now, out);
        if (fclose(out) == 0) send_to_all(c, event, length);
        free(event);
    }
    routing_crowd_clear(&c->sums);
}

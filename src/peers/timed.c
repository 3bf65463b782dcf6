/* timed.c - passes each call on and measures how long it takes. */
#include "peers/timed.h"

#include "base/clock.h"

static dsmoe_status count(timed_peers *t, double start, dsmoe_status status)
{
    t->seconds += clock_seconds() - start;
    return status;
}

static dsmoe_status timed_agree(void *context, int64_t mine, int64_t *largest, dsmoe_error *error)
{
    timed_peers *t = context;
    double start = clock_seconds();
    return count(t, start, t->of->agree(t->of->context, mine, largest, error));
}

static dsmoe_status timed_broadcast(void *context, int root, void *bytes, size_t size,
                                    dsmoe_error *error)
{
    timed_peers *t = context;
    double start = clock_seconds();
    return count(t, start, t->of->broadcast(t->of->context, root, bytes, size, error));
}

static dsmoe_status timed_gather(void *context, const dsmoe_bytes *parts, dsmoe_error *error)
{
    timed_peers *t = context;
    double start = clock_seconds();
    return count(t, start, t->of->gather(t->of->context, parts, error));
}

static dsmoe_status timed_begin(void *context, const dsmoe_bytes *send, const dsmoe_bytes *receive,
                                dsmoe_error *error)
{
    timed_peers *t = context;
    double start = clock_seconds();
    return count(t, start, t->of->exchange_begin(t->of->context, send, receive, error));
}

static dsmoe_status timed_end(void *context, dsmoe_error *error)
{
    timed_peers *t = context;
    double start = clock_seconds();
    return count(t, start, t->of->exchange_end(t->of->context, error));
}

static void timed_poll(void *context)
{
    timed_peers *t = context;
    double start = clock_seconds();
    if (t->of->poll) t->of->poll(t->of->context);
    count(t, start, DSMOE_OK);
}

void timed_peers_open(timed_peers *t, const dsmoe_peers *of)
{
    *t = (timed_peers){.table = *of, .of = of};
    t->table.context = t;
    t->table.agree = timed_agree;
    t->table.broadcast = timed_broadcast;
    t->table.gather = timed_gather;
    t->table.exchange_begin = timed_begin;
    t->table.exchange_end = timed_end;
    t->table.poll = timed_poll;
}

double timed_peers_take(timed_peers *t)
{
    double seconds = t->seconds;
    t->seconds = 0;
    return seconds;
}

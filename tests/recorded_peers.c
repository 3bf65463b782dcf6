/* recorded_peers.c - a table of ranks that records every call. */
#include "recorded_peers.h"

#include "support.h"

#include <stdlib.h>
#include <string.h>

static recorded_call *note(recorded_peers *r, recorded_kind kind)
{
    assert_true(r->n_calls < RECORDED_CALLS);
    recorded_call *call = &r->calls[r->n_calls++];
    *call = (recorded_call){.kind = kind};
    return call;
}

static dsmoe_status recorded_agree(void *context, int64_t mine, int64_t *largest,
                                   dsmoe_error *error)
{
    recorded_peers *r = context;
    note(r, RECORDED_OTHER);
    return r->inner->agree(r->inner->context, mine, largest, error);
}

static dsmoe_status recorded_broadcast(void *context, int root, void *bytes, size_t size,
                                       dsmoe_error *error)
{
    recorded_peers *r = context;
    note(r, RECORDED_OTHER);
    return r->inner->broadcast(r->inner->context, root, bytes, size, error);
}

static dsmoe_status recorded_gather(void *context, const dsmoe_bytes *parts, dsmoe_error *error)
{
    recorded_peers *r = context;
    recorded_call *call = note(r, RECORDED_GATHER);
    size_t all = 0;
    for (int i = 0; i < r->table.size; i++) all += call->send[i] = parts[i].size;
    dsmoe_status status = r->inner->gather(r->inner->context, parts, error);
    char *at = call->bytes = malloc(all + 1);
    for (int i = 0; i < r->table.size; at += parts[i++].size)
        if (parts[i].size) memcpy(at, parts[i].bytes, parts[i].size);
    return status;
}

static dsmoe_status recorded_begin(void *context, const dsmoe_bytes *send,
                                   const dsmoe_bytes *receive, dsmoe_error *error)
{
    recorded_peers *r = context;
    recorded_call *call = note(r, RECORDED_BEGIN);
    for (int i = 0; i < r->table.size; i++) {
        call->send[i] = i == r->table.rank ? 0 : send[i].size;
        call->receive[i] = i == r->table.rank ? 0 : receive[i].size;
    }
    r->n_polls = 0;
    return r->inner->exchange_begin(r->inner->context, send, receive, error);
}

static dsmoe_status recorded_end(void *context, dsmoe_error *error)
{
    recorded_peers *r = context;
    note(r, RECORDED_END)->n_polls = r->n_polls;
    return r->inner->exchange_end(r->inner->context, error);
}

static void recorded_poll(void *context)
{
    recorded_peers *r = context;
    r->n_polls++;
    r->inner->poll(r->inner->context);
}

void recorded_peers_open(const dsmoe_peers *inner, recorded_peers *out)
{
    assert_true(inner->size <= RECORDED_RANKS);
    *out = (recorded_peers){.table = *inner, .inner = inner};
    out->calls = calloc(RECORDED_CALLS, sizeof *out->calls);
    assert_non_null(out->calls);
    out->table.context = out;
    out->table.agree = recorded_agree;
    out->table.broadcast = recorded_broadcast;
    out->table.gather = recorded_gather;
    out->table.exchange_begin = recorded_begin;
    out->table.exchange_end = recorded_end;
    out->table.poll = recorded_poll;
}

void recorded_peers_close(recorded_peers *r)
{
    for (int i = 0; i < r->n_calls; i++) free(r->calls[i].bytes);
    free(r->calls);
}

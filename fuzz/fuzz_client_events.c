/* fuzz_client_events.c - any bytes as a server's answer: the result is the same whether they arrive in one
 * piece or byte by byte. */
#include "fuzz.h"

#include <string.h>

#include "serve/client_events.h"

typedef struct seen {
    byte_buffer text;
    client_events events;
    dsmoe_status status;
    dsmoe_error error;
} seen;

static bool show(void *context, const char *text, size_t length)
{
    seen *s = context;
    require(text && length > 0);
    require(byte_buffer_append(&s->text, text, length, NULL) == DSMOE_OK);
    return true;
}

static void put(seen *s, const char *bytes, size_t length, size_t step)
{
    *s = (seen){.events = {.show = show, .context = s}};
    client_events_begin(&s->events);
    for (size_t at = 0; at < length && s->status == DSMOE_OK; at += step)
        s->status = client_events_put(&s->events, bytes + at,
                                      length - at < step ? length - at : step, &s->error);
    if (s->status != DSMOE_OK) require_error(s->status, &s->error);
}

static void require_same(const seen *a, const seen *b)
{
    require(a->status == b->status && a->text.length == b->text.length);
    require(a->text.length == 0 || !memcmp(a->text.bytes, b->text.bytes, a->text.length));
    require(a->events.is_done == b->events.is_done && a->events.finish == b->events.finish);
    require(!memcmp(&a->events.cost, &b->events.cost, sizeof a->events.cost));
    require(a->events.n_texts == b->events.n_texts);
    require(a->status == DSMOE_OK || !strcmp(a->error.message, b->error.message));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    seen whole, pieces;
    put(&whole, bytes, size, size + 1);
    put(&pieces, bytes, size, 1);
    require_same(&whole, &pieces);
    client_events_free(&whole.events);
    client_events_free(&pieces.events);
    byte_buffer_free(&whole.text);
    byte_buffer_free(&pieces.text);

    client_refusal refusal;
    client_read_refusal(bytes, size, &refusal);
    require(memchr(refusal.message, '\0', sizeof refusal.message));
    free(client_read_model(bytes, size));
    return 0;
}

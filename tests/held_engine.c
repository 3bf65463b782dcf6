/* held_engine.c - an engine behind a server that a test can stop and resume. */
#include "held_engine.h"

#include <stdatomic.h>

#include "base/clock.h"

static _Atomic int n_allowed = -1; /* passes; -1: any number */

dsmoe_status __real_dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns, int64_t n_turns,
                                         dsmoe_error *error);
dsmoe_status __wrap_dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns, int64_t n_turns,
                                         dsmoe_error *error);
dsmoe_status __wrap_dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns, int64_t n_turns,
                                         dsmoe_error *error)
{
    int n;
    while ((n = atomic_load(&n_allowed)) == 0) sleep_seconds(0.002);
    if (n > 0) atomic_compare_exchange_strong(&n_allowed, &n, n - 1);
    return __real_dsmoe_engine_forward(engine, turns, n_turns, error);
}

void allow(int n_passes) { atomic_store(&n_allowed, n_passes); }
void hold(bool on) { allow(on ? 0 : -1); }

void begin_asking(http_client *client, server *s, const char *body)
{
    assert_true(client_open(client, server_url(s)));
    assert_true(client_ask(client, "POST", "/v1/completions", "", body));
}

void wait_for(server *s, const char *name, double value)
{
    double end = clock_seconds() + 10;
    while (metric(s, name) != value)
        if (clock_seconds() > end) fail_msg("%s did not become %g", name, value);
}

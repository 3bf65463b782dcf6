/* held_engine.h - an engine behind a server that a test can stop and resume, and requests that wait for
 * it. The test is linked with --wrap=dsmoe_engine_forward. */
#ifndef DSMOE_TESTS_HELD_ENGINE_H
#define DSMOE_TESTS_HELD_ENGINE_H

#include "serve_fixture.h"

/* Allows n more passes; -1: any number. */
void allow(int n_passes);
void hold(bool on); /* on: no passes; off: any number */

#define LONG_TEXT                                                                                  \
    "{\"prompt\": \"a\", \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": true, \"seed\": 1}"

/* Sends a completion request and leaves its answer unread. */
void begin_asking(http_client *client, server *s, const char *body);
/* Waits until a value of /metrics is `value`; fails the test if that takes too long. */
void wait_for(server *s, const char *name, double value);

#endif

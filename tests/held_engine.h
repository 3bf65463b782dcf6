/* held_engine.h - an engine that a test can hold up, behind a server, and requests that wait for it. The test is linked with
 * --wrap=dsmoe_engine_forward. */
#ifndef DSMOE_TESTS_HELD_ENGINE_H
#define DSMOE_TESTS_HELD_ENGINE_H

#include "serve_fixture.h"

/* So many passes from here on; -1: any number. */
void allow(int n_passes);
void hold(bool on); /* none, or any number */

#define LONG_TEXT                                                                                  \
    "{\"prompt\": \"a\", \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": true, \"seed\": 1}"

/* A completion whose answer is not read yet. */
void begin_asking(http_client *client, server *s, const char *body);
/* Until a value of /metrics is this one; fails the test if that takes too long. */
void wait_for(server *s, const char *name, double value);

#endif

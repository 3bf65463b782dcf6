/* serve_fixture.h - a server with a small quantised model and tokenizer, a client for it, and access to
 * the values of its JSON answers. */
#ifndef DSMOE_TESTS_SERVE_FIXTURE_H
#define DSMOE_TESTS_SERVE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "formats/json.h"
#include "http_client.h"
#include "serve/server.h"

/* Set-up and tear-down of a group of tests: make and remove the model. */
int make_served_model(void **state);
int remove_served_model(void **state);

/* The model; and the adapters for servers that are started later (n 0: none). */
const dsmoe_model *served_model(void);
void serve_adapters(const dsmoe_adapter *const *adapters, int n);

/* Options: any free port, two threads, four texts of at most 256 tokens each. A test may change them. */
server_options served_options(void);
server *start_server(const server_options *options);

/* Sends a request with a JSON body; returns the answer as a tree, to be freed. Fails the test if the
 * status differs. */
json_node *ask(server *s, int status, const char *method, const char *path, const char *body);
json_node *parse_json(const char *text);

/* The value at a path such as "choices.0.message.content"; fails the test if there is none. */
const json_node *value_at(const json_node *root, const char *path);
bool has_value(const json_node *root, const char *path);
int64_t integer_at(const json_node *root, const char *path);
double number_at(const json_node *root, const char *path);
const char *string_at(const json_node *root, const char *path);
bool is_null_at(const json_node *root, const char *path);

/* Waits until all slots are idle; fails the test if that takes longer than `seconds`. */
void wait_until_idle(server *s, double seconds);
/* The value in the line of /metrics that begins with `name`. */
double metric(server *s, const char *name);
void sleep_seconds(double seconds);

#endif

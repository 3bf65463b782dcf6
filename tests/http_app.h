/* http_app.h - a server for tests of HTTP: "/hello" says hello, "/empty" has an empty answer, "/echo"
 * returns the body, "/nothing" ends without an answer, "/refused" is refused before its body, "/held"
 * waits for a test to take it, and every other path describes the request. */
#ifndef DSMOE_TESTS_HTTP_APP_H
#define DSMOE_TESTS_HTTP_APP_H

#include "support.h"

#include <pthread.h>

#include "http_client.h"
#include "serve/http.h"

enum { MAX_BODY = 64 * 1024, MAX_HELD = 64 };

extern struct http_app {
    http_server *server;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t came;
    http_exchange *held[MAX_HELD];
    int n_held, n_admitted, n_finished;
    http_summary last; /* of the request that finished last */
} app;

/* Options: 127.0.0.1, a free port, bodies of MAX_BODY, an idle limit of one second. */
http_options usual(void);
void start(http_options options);
const char *url(void); /* where it listens */
/* Set-up and tear-down of a test with the usual server. */
int start_usual(void **state);
int stop(void **state);
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start_usual, stop)

/* Waits for the next held request and takes it. */
http_exchange *take_exchange(void);
void connect_to(http_client *client);
/* Sends a request to "/held" by a new client, and takes it. */
http_exchange *ask_held(http_client *client, const char *body);
/* Fails the test unless the answer is complete and has this status and body (NULL: any). */
void expect(http_client *client, int status, const char *body);

void pause_for(double seconds);
bool becomes_gone(http_exchange *exchange); /* whether http_alive turns false within 5 seconds */
int n_admitted(void);
int n_finished(void);
void wait_finished(int n);
void wait_connections(int n);

#endif

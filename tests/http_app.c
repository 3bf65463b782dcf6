/* http_app.c - a server for tests of HTTP. */
#include "http_app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

struct http_app app = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static bool admit(void *context, http_exchange *x)
{
    assert_ptr_equal(context, &app);
    pthread_mutex_lock(&app.lock);
    app.n_admitted++;
    pthread_mutex_unlock(&app.lock);
    if (strcmp(http_path(x), "/refused")) return false;
    http_answer(x, 401, "text/plain", "no\n", 3);
    return true;
}

/* Answers with what the server sees of the request. */
static void describe(http_exchange *x)
{
    char text[4096];
    const char *a = http_parameter(x, "a"), *b = http_parameter(x, "b");
    int n = snprintf(text, sizeof text, "%s %s a=%s b=%s x=%s peer=%s", http_method(x),
                     http_path(x), a ? a : "-", b ? b : "-",
                     http_header(x, "x-TEST") ? http_header(x, "X-Test") : "-", http_peer(x));
    http_begin(x, 200, "text/plain", false);
    http_add_header(x, "X-Extra", "more");
    http_send(x, text, (size_t)n);
    http_end(x);
}

static void handle(void *context, http_exchange *x)
{
    (void)context;
    size_t length;
    const char *body = http_body(x, &length);
    assert_int_equal(body[length], 0);
    if (!strcmp(http_path(x), "/hello")) {
        http_answer(x, 200, "text/plain", "hello\n", 6);
    } else if (!strcmp(http_path(x), "/empty")) {
        http_answer(x, 204, NULL, "", 0);
    } else if (!strcmp(http_path(x), "/echo")) {
        http_answer(x, 200, "application/octet-stream", body, length);
    } else if (!strcmp(http_path(x), "/nothing")) {
        http_end(x);
    } else if (!strncmp(http_path(x), "/held", 5)) {
        pthread_mutex_lock(&app.lock);
        app.held[app.n_held++] = x;
        pthread_cond_broadcast(&app.came);
        pthread_mutex_unlock(&app.lock);
    } else {
        describe(x);
    }
}

static char *error_body(int status, const char *message)
{
    char *text = NULL;
    return asprintf(&text, "{\"error\": %d, \"message\": \"%s\"}", status, message) < 0 ? NULL
                                                                                        : text;
}

static void finished(void *context, http_exchange *x)
{
    (void)context;
    pthread_mutex_lock(&app.lock);
    app.n_finished++;
    app.last = http_summarise(x);
    pthread_mutex_unlock(&app.lock);
}

http_options usual(void)
{
    return (http_options){.host = "127.0.0.1",
                          .n_threads = 2,
                          .max_connections = 200,
                          .max_body = MAX_BODY,
                          .max_bodies = 1 << 20,
                          .idle_seconds = 1,
                          .admit = admit,
                          .handle = handle,
                          .error_body = error_body,
                          .finished = finished,
                          .context = &app};
}

const char *url(void) { return http_server_url(app.server); }

void start(http_options options)
{
    dsmoe_error error = {0};
    app.n_held = app.n_admitted = app.n_finished = 0;
    if (http_server_start(&options, &app.server, &error)) fail_msg("%s", error.message);
}

int start_usual(void **state)
{
    (void)state;
    start(usual());
    return 0;
}

int stop(void **state)
{
    (void)state;
    http_server_stop(app.server);
    app.server = NULL;
    assert_int_equal(app.n_held, 0);
    assert_true(app.n_finished >= app.n_admitted); /* some finish without being admitted */
    return 0;
}

void pause_for(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

http_exchange *take_exchange(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&app.lock);
    while (!app.n_held)
        if (pthread_cond_timedwait(&app.came, &app.lock, &until)) fail_msg("no request came");
    http_exchange *x = app.held[0];
    memmove(app.held, app.held + 1, (size_t)--app.n_held * sizeof *app.held);
    pthread_mutex_unlock(&app.lock);
    return x;
}

void connect_to(http_client *c)
{
    if (!client_open(c, url())) fail_msg("%s", c->problem);
}

http_exchange *ask_held(http_client *c, const char *body)
{
    connect_to(c);
    assert_true(client_ask(c, "POST", "/held", "", body));
    return take_exchange();
}

void expect(http_client *c, int status, const char *body)
{
    int got = client_read(c);
    if (got != status) fail_msg("%d instead of %d: %s", got, status, c->problem);
    if (body) assert_string_equal(c->body, body);
}

bool becomes_gone(http_exchange *x)
{
    double until = clock_seconds() + 5;
    while (clock_seconds() < until) {
        if (!http_alive(x)) return true;
        pause_for(0.005);
    }
    return false;
}

int n_admitted(void)
{
    pthread_mutex_lock(&app.lock);
    int n = app.n_admitted;
    pthread_mutex_unlock(&app.lock);
    return n;
}

int n_finished(void)
{
    pthread_mutex_lock(&app.lock);
    int n = app.n_finished;
    pthread_mutex_unlock(&app.lock);
    return n;
}

void wait_finished(int n)
{
    double until = clock_seconds() + 5;
    while (n_finished() < n && clock_seconds() < until) pause_for(0.005);
    assert_int_equal(n_finished(), n);
}

void wait_connections(int n)
{
    double until = clock_seconds() + 5;
    while (http_server_connections(app.server) != n && clock_seconds() < until) pause_for(0.005);
    assert_int_equal(http_server_connections(app.server), n);
}

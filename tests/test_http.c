/* test_http.c - the HTTP side of the server against a client that does as it likes: whole answers and streams from
 * other threads, clients that leave, dawdle or lie, and the ends of a server. */
#include "support.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "http_client.h"
#include "scratch.h"
#include "serve/http.h"

enum { MAX_BODY = 64 * 1024, MAX_HELD = 64 };

/* ---- a server for tests --------------------------------------------------------------------- */

/* Requests for "/held…" wait here until a test takes them; others are answered at once. */
static struct {
    http_server *server;
    pthread_mutex_t lock;
    pthread_cond_t came;
    http_exchange *held[MAX_HELD];
    int n_held, n_admitted, n_finished;
    http_summary last;
    char last_path[64];
} app = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

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

/* What the request looks like from here. */
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
    snprintf(app.last_path, sizeof app.last_path, "%s", http_path(x));
    pthread_mutex_unlock(&app.lock);
}

static http_options usual(void)
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

static const char *url(void) { return http_server_url(app.server); }

static void start(http_options options)
{
    dsmoe_error error = {0};
    app.n_held = app.n_admitted = app.n_finished = 0;
    if (http_server_start(&options, &app.server, &error)) fail_msg("%s", error.message);
}

static int start_usual(void **state)
{
    (void)state;
    start(usual());
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop(app.server);
    app.server = NULL;
    assert_int_equal(app.n_held, 0);
    assert_true(app.n_finished >= app.n_admitted); /* some are refused before */
    return 0;
}

static void pause_for(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

/* The next request that is held. */
static http_exchange *take(void)
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

static void connect_to(http_client *c)
{
    if (!client_open(c, url())) fail_msg("%s", c->problem);
}

static http_exchange *ask_held(http_client *c, const char *body)
{
    connect_to(c);
    assert_true(client_ask(c, "POST", "/held", "", body));
    return take();
}

/* Fails the test unless the answer is complete and has this status and body (NULL: any). */
static void expect(http_client *c, int status, const char *body)
{
    int got = client_read(c);
    if (got != status) fail_msg("%d instead of %d: %s", got, status, c->problem);
    if (body) assert_string_equal(c->body, body);
}

static bool becomes_gone(http_exchange *x)
{
    double until = clock_seconds() + 5;
    while (clock_seconds() < until) {
        if (!http_alive(x)) return true;
        pause_for(0.005);
    }
    return false;
}

static int n_finished(void)
{
    pthread_mutex_lock(&app.lock);
    int n = app.n_finished;
    pthread_mutex_unlock(&app.lock);
    return n;
}

static void wait_finished(int n)
{
    double until = clock_seconds() + 5;
    while (n_finished() < n && clock_seconds() < until) pause_for(0.005);
    assert_int_equal(n_finished(), n);
}

static void wait_connections(int n)
{
    double until = clock_seconds() + 5;
    while (http_server_connections(app.server) != n && clock_seconds() < until) pause_for(0.005);
    assert_int_equal(http_server_connections(app.server), n);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void test_plain(void **state)
{
    (void)state;
    http_client c;
    char id[40];
    assert_int_equal(client_fetch(&c, url(), "GET", "/hello", "", NULL), 200);
    assert_string_equal(c.body, "hello\n");
    assert_string_equal(client_header(&c, "Content-Length"), "6");
    assert_string_equal(client_header(&c, "Content-Type"), "text/plain");
    assert_string_equal(client_header(&c, "X-Content-Type-Options"), "nosniff");
    assert_null(client_header(&c, "Transfer-Encoding"));
    assert_int_equal(strlen(client_header(&c, "x-request-id")), 32);
    assert_int_equal(strspn(client_header(&c, "x-request-id"), "0123456789abcdef"), 32);
    strcpy(id, client_header(&c, "x-request-id"));
    wait_finished(1);
    assert_int_equal(app.last.status, 200);
    assert_int_equal(app.last.n_sent, 6);
    assert_true(app.last.complete);
    assert_true(app.last.seconds >= 0 && app.last.seconds < 5);
    assert_true(client_ask(&c, "GET", "/hello", "", NULL));
    expect(&c, 200, "hello\n");
    assert_string_not_equal(client_header(&c, "x-request-id"), id);
    client_close(&c);
}

/* What the rest of the server sees of a request. */
static void test_requests(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *headers, *seen;
    } cases[] = {
        {"GET", "/a/b", "", "GET /a/b a=- b=- x=- peer=127.0.0.1"},
        {"DELETE", "/a", "X-Test: 1 2\r\n", "DELETE /a a=- b=- x=1 2 peer=127.0.0.1"},
        {"BREW", "/a", "x-test:\r\n", "BREW /a a=- b=- x= peer=127.0.0.1"},
        {"GET", "/a?a=1&b=%41+c", "", "GET /a a=1 b=A c x=- peer=127.0.0.1"},
        {"GET", "/a?a", "", "GET /a a= b=- x=- peer=127.0.0.1"},
        {"GET", "/a?b=x&b=y&a==", "", "GET /a a== b=x x=- peer=127.0.0.1"},
        {"GET", "/%2e%2e/%2E%2e/etc/passwd", "",
         "GET /%2e%2e/%2E%2e/etc/passwd a=- b=- x=- peer=127.0.0.1"},
        {"GET", "/../../etc/passwd", "", "GET /../../etc/passwd a=- b=- x=- peer=127.0.0.1"},
        {"GET", "/%00", "", "GET /%00 a=- b=- x=- peer=127.0.0.1"},
        {"GET", "//", "", "GET // a=- b=- x=- peer=127.0.0.1"},
        {"GET", "/%zz+%", "", "GET /%zz+% a=- b=- x=- peer=127.0.0.1"},
        {"OPTIONS", "*", "", "OPTIONS * a=- b=- x=- peer=127.0.0.1"},
    };
    http_client c;
    connect_to(&c);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_true(client_ask(&c, cases[i].method, cases[i].path, cases[i].headers, NULL));
        expect(&c, 200, cases[i].seen);
        assert_string_equal(client_header(&c, "X-Extra"), "more");
    }
    client_close(&c);
}

static void test_keep_alive(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    for (int i = 0; i < 20; i++) {
        assert_true(client_ask(&c, "POST", "/echo", "", "some text"));
        expect(&c, 200, "some text");
        assert_true(client_ask(&c, "HEAD", "/hello", "", NULL));
        expect(&c, 200, "");
        assert_string_equal(client_header(&c, "Content-Length"), "6");
        assert_true(client_ask(&c, "GET", "/empty", "", NULL));
        expect(&c, 204, "");
        assert_true(client_ask(&c, "POST", "/refused", "", "a body that nobody reads"));
        expect(&c, 401, "no\n");
    }
    /* several at once are answered in turn */
    assert_true(client_say(&c, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
                               "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                               "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"));
    expect(&c, 200, "hello\n");
    expect(&c, 200, "abc");
    expect(&c, 200, NULL);
    assert_int_equal(http_server_connections(app.server), 1);
    assert_true(client_ask(&c, "GET", "/hello", "Connection: close\r\n", NULL));
    expect(&c, 200, "hello\n");
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    wait_connections(0);
}

static void test_old_client(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_say(&c, "GET /hello HTTP/1.0\r\n\r\n"));
    expect(&c, 200, "hello\n");
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    connect_to(&c);
    assert_true(client_say(&c, "GET /held HTTP/1.0\r\n\r\n"));
    http_exchange *x = take();
    http_begin(x, 200, "text/event-stream", true);
    assert_true(http_send(x, "data: 1\n\n", 9));
    http_end(x);
    expect(&c, 200, "data: 1\n\n");
    assert_null(client_header(&c, "Transfer-Encoding"));
    client_close(&c);
}

/* Later, from another thread than the one that brought the request. */
static void test_later(void **state)
{
    (void)state;
    http_client c;
    http_exchange *x = ask_held(&c, "the body");
    size_t length;
    assert_string_equal(http_body(x, &length), "the body");
    assert_int_equal(length, 8);
    assert_true(http_alive(x));
    http_begin(x, 201, "application/json", false);
    assert_true(http_send(x, "{", 1));
    c.patience = 0.05;
    assert_false(client_read_head(&c)); /* nothing leaves before its length is known */
    c.patience = 10;
    assert_true(http_send(x, "}", 1));
    assert_int_equal(http_unsent(x), 2);
    http_end(x);
    expect(&c, 201, "{}");
    assert_string_equal(client_header(&c, "Content-Length"), "2");
    /* and once more on the same connection */
    assert_true(client_ask(&c, "POST", "/held", "", "again"));
    http_answer(take(), 200, "text/plain", "done", 4);
    expect(&c, 200, "done");
    client_close(&c);
}

static void test_stream(void **state)
{
    (void)state;
    http_client c;
    http_exchange *x = ask_held(&c, "");
    http_begin(x, 200, "text/event-stream", true);
    http_add_header(x, "X-Extra", "1");
    assert_true(http_send(x, "", 0)); /* the head alone */
    assert_true(client_read_head(&c));
    assert_int_equal(c.status, 200);
    assert_string_equal(client_header(&c, "Transfer-Encoding"), "chunked");
    assert_string_equal(client_header(&c, "Cache-Control"), "no-cache");
    assert_string_equal(client_header(&c, "X-Accel-Buffering"), "no");
    assert_string_equal(client_header(&c, "X-Extra"), "1");
    assert_null(client_header(&c, "Content-Length"));
    for (int i = 0; i < 300; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, ":\n\ndata: {\"i\": %d}\n\n", i);
        assert_true(http_send(x, text, (size_t)n));
        snprintf(text, sizeof text, "{\"i\": %d}", i);
        const char *data = client_event(&c);
        if (!data) fail_msg("%s", c.problem);
        assert_string_equal(data, text);
        assert_true(http_alive(x));
    }
    assert_true(http_send(x, "data: [DONE]\n\n", 14));
    http_end(x);
    assert_string_equal(client_event(&c), "[DONE]");
    assert_null(client_event(&c));
    assert_true(c.complete);
    wait_finished(1);
    assert_true(app.last.complete);
    assert_true(client_ask(&c, "GET", "/hello", "", NULL));
    expect(&c, 200, "hello\n");
    client_close(&c);
}

/* An answer that never began leaves nothing but the end of the connection. */
static void test_no_answer(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_ask(&c, "GET", "/nothing", "", NULL));
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    http_end(ask_held(&c, ""));
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    wait_finished(2);
    assert_int_equal(app.last.status, 0);
    assert_false(app.last.complete);
}

/* ---- clients that leave --------------------------------------------------------------------- */

typedef void leave_fn(http_client *c);

static void check_leaving(leave_fn *leave, bool streaming)
{
    http_client c;
    int before = n_finished();
    http_exchange *x = ask_held(&c, "x");
    if (streaming) {
        http_begin(x, 200, "text/event-stream", true);
        assert_true(http_send(x, "data: 1\n\n", 9));
        assert_true(client_read_head(&c));
        assert_non_null(client_event(&c));
    }
    pause_for(0.02); /* the connection is suspended */
    assert_true(http_alive(x));
    leave(&c);
    assert_true(becomes_gone(x));
    if (!streaming) http_begin(x, 200, "text/event-stream", true);
    assert_false(http_send(x, "data: 2\n\n", 9));
    assert_string_equal(http_path(x), "/held");
    http_end(x);
    wait_finished(before + 1);
    assert_false(app.last.complete);
    client_close(&c);
    wait_connections(0);
}

static void test_leaving(void **state)
{
    (void)state;
    leave_fn *const ways[] = {client_close, client_reset, client_half_close};
    for (size_t i = 0; i < COUNT(ways); i++) {
        check_leaving(ways[i], false);
        check_leaving(ways[i], true);
    }
}

/* Nobody looks, but what is sent meets a closed connection, without a signal. */
static void test_unnoticed(void **state)
{
    (void)state;
    http_client c;
    http_exchange *x = ask_held(&c, "x");
    client_reset(&c);
    http_begin(x, 200, "text/event-stream", true);
    double until = clock_seconds() + 5;
    while (http_send(x, "data: more\n\n", 12) && clock_seconds() < until) pause_for(0.001);
    assert_false(http_send(x, "data: more\n\n", 12));
    http_end(x);
    x = ask_held(&c, "x");
    client_reset(&c);
    http_answer(x, 200, "text/plain", "x", 1); /* nobody takes it */
    wait_finished(2);
    wait_connections(0);
}

/* One that sends its request and closes its half is answered if the answer is there at once. */
static void test_half_close(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_say(&c, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
    client_half_close(&c);
    expect(&c, 200, "hello\n");
    client_close(&c);
    connect_to(&c); /* in the middle of a request */
    assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"));
    client_half_close(&c);
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
}

/* ---- clients that dawdle -------------------------------------------------------------------- */

static void test_slow_reader(void **state)
{
    (void)state;
    enum { BLOCK = 64 * 1024, N_BLOCKS = 256 };
    static char block[BLOCK];
    for (int i = 0; i < BLOCK; i++) block[i] = (char)('a' + i % 23);
    http_client c, other;
    http_exchange *x = ask_held(&c, "");
    http_begin(x, 200, "application/octet-stream", true);
    for (int i = 0; i < N_BLOCKS; i++) assert_true(http_send(x, block, BLOCK));
    assert_true(http_unsent(x) > BLOCK * N_BLOCKS / 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(client_fetch(&other, url(), "GET", "/hello", "", NULL), 200);
        client_close(&other);
    }
    http_end(x);
    assert_int_equal(client_read(&c), 200);
    assert_int_equal(c.length, BLOCK * N_BLOCKS);
    for (size_t i = 0; i < c.length; i += BLOCK) assert_memory_equal(c.body + i, block, BLOCK);
    client_close(&c);
}

/* Silence, and a byte now and then, while the head or the body of a request is awaited, end a connection; an answer
 * may take as long as it likes. */
static void test_slow_senders(void **state)
{
    (void)state;
    static const char *const beginnings[] = {
        "",
        "GET",
        "GET /hello HTTP/1.1\r\nHost: a\r\nX-A: ",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
        "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n"};
    enum { N = COUNT(beginnings) };
    http_client silent[N], slow[N], waiting, streaming;
    http_exchange *late = ask_held(&waiting, "x"), *half = ask_held(&streaming, "x");
    http_begin(half, 200, "text/event-stream", true);
    assert_true(http_send(half, "data: 1\n\n", 9));
    double began = clock_seconds();
    for (int i = 0; i < N; i++) {
        connect_to(&silent[i]);
        connect_to(&slow[i]);
        assert_true(client_send(&silent[i], beginnings[i], strlen(beginnings[i])));
        assert_true(client_send(&slow[i], beginnings[i], strlen(beginnings[i])));
    }
    int n_open = N;
    while (n_open && clock_seconds() < began + 8) {
        pause_for(0.2);
        n_open = 0;
        for (int i = 0; i < N; i++)
            n_open += !client_is_closed(&slow[i], 0) && client_send(&slow[i], "x", 1);
    }
    assert_int_equal(n_open, 0);
    for (int i = 0; i < N; i++) {
        assert_true(client_is_closed(&silent[i], 5));
        client_close(&silent[i]);
        client_close(&slow[i]);
    }
    assert_true(clock_seconds() > began + 2);
    http_answer(late, 200, "text/plain", "late", 4);
    expect(&waiting, 200, "late");
    assert_true(http_send(half, "data: 2\n\n", 9));
    http_end(half);
    expect(&streaming, 200, "data: 1\n\ndata: 2\n\n");
    client_close(&waiting);
    client_close(&streaming);
    wait_connections(0);
}

/* ---- clients that lie ----------------------------------------------------------------------- */

static void test_damaged_requests(void **state)
{
    (void)state;
#define POST "POST /echo HTTP/1.1\r\nHost: a\r\n"
    static const char *const cases[] = {
        POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        POST "Content-Length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        POST
        "Content-Length: 0\r\nContent-Length: 44\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST "Transfer-Encoding: identity\r\n\r\nabc",
        POST "Content-Length : 3\r\n\r\nabc",
        POST "Content-Length: -1\r\n\r\nabc",
        POST "Content-Length: +3\r\n\r\nabc",
        POST "Content-Length: 3,3\r\n\r\nabc",
        POST "Content-Length: 0x3\r\n\r\nabc",
        POST "Content-Length:\r\n\r\nabc",
        POST "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        http_client c;
        connect_to(&c);
        assert_true(client_send(&c, cases[i], strlen(cases[i])));
        int status = client_read(&c);
        if (status != 400) fail_msg("%s\n%d: %s", cases[i], status, c.problem);
        if (!client_is_cut_off(&c, 5)) fail_msg("%s\nstays open", cases[i]);
        client_close(&c);
    }
    static const char *const too_large[] = {
        POST "Content-Length: 99999999999999999999999\r\n\r\nabc",
        POST "Content-Length: 18446744073709551615\r\n\r\nabc",
        POST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT(too_large); i++) {
        http_client c;
        connect_to(&c);
        assert_true(client_send(&c, too_large[i], strlen(too_large[i])));
        expect(&c, 413, NULL);
        assert_true(client_is_cut_off(&c, 5));
        client_close(&c);
    }
}

/* What is no HTTP at all ends the connection, with a status or without. */
static void test_rubbish(void **state)
{
    (void)state;
    static const char *const cases[] = {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                                        "hello\r\n\r\n",
                                        "GET\r\n\r\n",
                                        "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
                                        "GET /hello HTTP/1.1\r\nno colon\r\n\r\n",
                                        "GET /hello HTTP/1.1\r\n: no name\r\n\r\n"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        http_client c;
        connect_to(&c);
        assert_true(client_send(&c, cases[i], strlen(cases[i])));
        int status = client_read(&c);
        if (status && (status < 400 || status > 505)) fail_msg("%s: %d", cases[i], status);
        if (!client_is_closed(&c, 5)) fail_msg("%s\nstays open", cases[i]);
        client_close(&c);
    }
}

/* A head that is too long is refused before it is all in. */
static void check_long_head(const char *first, const char *piece, int n)
{
    http_client c;
    connect_to(&c);
    bool taken = client_say(&c, "%s", first);
    for (int i = 0; i < n && taken; i++) taken = client_send(&c, piece, strlen(piece));
    int status = client_read(&c);
    if (status != 431 && status != 414 && !(c.ended && !status))
        fail_msg("%d %s", status, c.problem);
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
}

static void test_long_heads(void **state)
{
    (void)state;
    static char kilobyte[1025];
    memset(kilobyte, 'a', 1024);
    check_long_head("GET /hello HTTP/1.1\r\nHost: a\r\n", "X-Header: value\r\n", 10000);
    check_long_head("GET /hello HTTP/1.1\r\nHost: a\r\nX-Long: ", kilobyte, 1024);
    check_long_head("GET /", kilobyte, 1024);
    check_long_head("", kilobyte, 1024);
    check_long_head("GET /hello HTTP/1.1\r\nHost: a\r\n", "X:\r\n", 10000);
    http_client c;
    assert_int_equal(client_fetch(&c, url(), "GET", "/hello", "", NULL), 200);
    client_close(&c);
}

static void test_long_bodies(void **state)
{
    (void)state;
    static char body[MAX_BODY + 2];
    memset(body, 'b', MAX_BODY);
    http_client c;
    connect_to(&c);
    assert_true(client_ask(&c, "POST", "/echo", "", body)); /* just as long as may be */
    expect(&c, 200, body);
    assert_true(client_say(&c,
                           "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "%x;x=y\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n",
                           MAX_BODY, body));
    expect(&c, 200, body);
    body[MAX_BODY] = 'b';
    assert_true(client_say(&c,
                           "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "%x\r\n%s\r\n0\r\n\r\n",
                           MAX_BODY + 1, body));
    expect(&c, 413, NULL);
    assert_string_equal(client_header(&c, "Content-Type"), "application/json");
    assert_non_null(strstr(c.body, "\"error\": 413"));
    assert_true(client_ask(&c, "GET", "/hello", "", NULL));
    expect(&c, 200, "hello\n");
    /* by its length alone */
    assert_true(
        client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n"));
    expect(&c, 413, NULL);
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    /* without an end */
    connect_to(&c);
    assert_true(
        client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
    bool taken = true;
    for (int i = 0; i < 1000 && taken; i++)
        taken = client_say(&c, "%x\r\n%s\r\n", MAX_BODY + 1, body);
    assert_false(taken);
    client_close(&c);
}

static void test_expect(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                               "Expect: 100-continue\r\n\r\n"));
    assert_true(client_read_interim(&c));
    assert_int_equal(c.status, 100);
    assert_true(client_send(&c, "abc", 3));
    expect(&c, 200, "abc");
    assert_true(client_say(&c, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                               "Expect: 100-continue\r\n\r\n"));
    assert_true(client_read_interim(&c));
    assert_int_equal(c.status, 401);
    client_close(&c);
    connect_to(&c);
    assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n"
                               "Expect: 100-continue\r\n\r\n"));
    assert_true(client_read_interim(&c));
    assert_int_equal(c.status, 413);
    client_close(&c);
}

/* All requests in hand share one limit. */
static void test_many_bodies(void **state)
{
    (void)state;
    static char body[MAX_BODY + 1];
    memset(body, 'c', MAX_BODY);
    http_client c[12], late;
    http_exchange *x[12];
    int n = 0;
    for (; n < 12; n++) { /* each takes up to twice its length while it is held */
        connect_to(&c[n]);
        assert_true(client_ask(&c[n], "POST", "/held", "", body));
        c[n].patience = 0.1;
        if (client_read(&c[n])) break;
        x[n] = take();
    }
    assert_true(n < 12);
    assert_int_equal(c[n].status, 503);
    assert_string_equal(client_header(&c[n], "Retry-After"), "1");
    assert_int_equal(client_fetch(&late, url(), "GET", "/hello", "", NULL), 200);
    client_close(&late);
    client_close(&c[n]);
    for (int i = 0; i < n; i++) {
        http_answer(x[i], 200, "text/plain", "x", 1);
        c[i].patience = 10;
        expect(&c[i], 200, "x");
        client_close(&c[i]);
    }
    wait_finished(n + 2);
    assert_int_equal(client_fetch(&late, url(), "POST", "/echo", "", body), 200);
    client_close(&late);
}

/* ---- where it listens ----------------------------------------------------------------------- */

static void expect_refusal(http_options options, const char *says, const char *and_says)
{
    dsmoe_error error = {0};
    http_server *server = NULL;
    assert_int_not_equal(http_server_start(&options, &server, &error), DSMOE_OK);
    assert_null(server);
    if (!strstr(error.message, says) || !strstr(error.message, and_says))
        fail_msg("%s", error.message);
    assert_null(strchr(error.message, '\n'));
}

static void test_addresses(void **state)
{
    (void)state;
    http_client c;
    http_options options = usual();
    assert_int_equal(strncmp(url(), "http://127.0.0.1:", 17), 0);
    options.port = atoi(url() + 17);
    assert_true(options.port > 0);
    char place[40];
    snprintf(place, sizeof place, "127.0.0.1:%d", options.port);
    expect_refusal(options, place, "in use");
    options.port = 65536;
    expect_refusal(options, "65536", "port");
    options.port = -1;
    expect_refusal(options, "-1", "port");
    options.port = 0;
    options.host = "no such host";
    expect_refusal(options, "no such host", "cannot listen");
    options.host = "192.0.2.1"; /* nobody's */
    expect_refusal(options, "192.0.2.1:0", "cannot");
    options.host = "";
    expect_refusal(options, "host", "name");
    static const char *const hosts[] = {"localhost", "0.0.0.0", NULL, "::1"};
    for (size_t i = 0; i < COUNT(hosts); i++) {
        http_server *server = NULL;
        options.host = hosts[i];
        if (http_server_start(&options, &server, NULL) != DSMOE_OK) {
            assert_int_equal(i, 3); /* there may be no IPv6 */
            continue;
        }
        if (i == 3) assert_int_equal(strncmp(http_server_url(server), "http://[::1]:", 13), 0);
        assert_int_equal(client_fetch(&c, http_server_url(server), "GET", "/hello", "", NULL), 200);
        client_close(&c);
        http_server_stop(server);
    }
}

static void test_unix_socket(void **state)
{
    (void)state;
    http_options options = usual();
    options.socket_path = path;
    http_client c;
    char where[400];
    snprintf(where, sizeof where, "unix:%s", path);
    write_bytes("precious", 8); /* another file is never deleted */
    expect_refusal(options, path, "exists");
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    start(options);
    assert_string_equal(url(), where);
    assert_int_equal(client_fetch(&c, where, "GET", "/x", "", NULL), 200);
    assert_string_equal(c.body, "GET /x a=- b=- x=- peer=unix");
    client_close(&c);
    expect_refusal(options, path, "in use"); /* nor one that somebody listens on */
    assert_int_equal(client_fetch(&c, where, "GET", "/x", "", NULL), 200);
    client_close(&c);
    /* a file that an ended server left is replaced */
    char other[320];
    snprintf(other, sizeof other, "%s.left", path);
    assert_int_equal(link(path, other), 0);
    stop(NULL);
    assert_int_equal(access(path, F_OK), -1); /* and is removed at the end */
    options.socket_path = other;
    start(options);
    snprintf(where, sizeof where, "unix:%s", other);
    assert_int_equal(client_fetch(&c, where, "GET", "/x", "", NULL), 200);
    client_close(&c);
    stop(NULL);
    assert_int_equal(access(other, F_OK), -1);
    options.socket_path = "/nowhere/socket";
    expect_refusal(options, "/nowhere/socket", "No such file");
    char longer[300];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    options.socket_path = longer;
    expect_refusal(options, "aaa", "bytes");
}

/* ---- TLS ------------------------------------------------------------------------------------ */

/* Made for this test: it signs itself, and opens nothing. */
static const char tls_cert[] = "-----BEGIN CERTIFICATE-----\n"
                               "MIIBfjCCASWgAwIBAgIUX0QYlhdhUwEbEB2oH2SiFKx6uwUwCgYIKoZIzj0EAwIw\n"
                               "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNzA1NTczN1oYDzIxMjYxMDI0\n"
                               "MDU1NzM3WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
                               "PQMBBwNCAAQgXMiegypb461YYT1yy0YKnVNbN0nUlkZrXFHPPLezF8e3tQdvYqSM\n"
                               "DxV2WArXtnCipABcj8CZj3BODCmZd27Uo1MwUTAdBgNVHQ4EFgQUHyaWLUjFK9Nn\n"
                               "kI+25Ezhnh506NkwHwYDVR0jBBgwFoAUHyaWLUjFK9NnkI+25Ezhnh506NkwDwYD\n"
                               "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBh+xEC0aJm0cXodwz8h0Lr\n"
                               "CA0440ry6ncGQuMX/by0YwIgKhVFO3usWKjHGaOwL/IIcBaRYtehAlWOwYo1+HMr\n"
                               "Vos=\n"
                               "-----END CERTIFICATE-----\n";
static const char tls_key[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPdGZLfK2xMOVyEw3\n"
                              "W6EH4DbsFReUPolR4gIyqWTBcy+hRANCAAQgXMiegypb461YYT1yy0YKnVNbN0nU\n"
                              "lkZrXFHPPLezF8e3tQdvYqSMDxV2WArXtnCipABcj8CZj3BODCmZd27U\n"
                              "-----END PRIVATE KEY-----\n";

static size_t drop(char *bytes, size_t size, size_t n, void *context)
{
    snprintf(context, 16, "%.*s", (int)(size * n), bytes);
    return size * n;
}

static void test_tls(void **state)
{
    (void)state;
    char key_path[320], text[16] = "";
    snprintf(key_path, sizeof key_path, "%s.key", path);
    FILE *file = fopen(key_path, "w");
    assert_non_null(file);
    fputs(tls_key, file);
    assert_int_equal(fclose(file), 0);
    write_bytes(tls_cert, strlen(tls_cert));
    http_options options = usual();
    options.cert = path;
    expect_refusal(options, "certificate", "key");
    options.key = "/nowhere/key.pem";
    expect_refusal(options, "/nowhere/key.pem", "cannot");
    options.key = path; /* a certificate is no key */
    expect_refusal(options, path, "not a certificate and its key");
    options.key = key_path;
    start(options);
    assert_int_equal(strncmp(url(), "https://127.0.0.1:", 18), 0);
    CURL *curl = curl_easy_init();
    char address[600];
    snprintf(address, sizeof address, "%s/hello", url());
    curl_easy_setopt(curl, CURLOPT_URL, address);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, text);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
    CURLcode code = curl_easy_perform(curl);
    if (code) fail_msg("%s", curl_easy_strerror(code));
    assert_string_equal(text, "hello\n");
    curl_easy_cleanup(curl);
    stop(NULL);
    write_bytes("no certificate\n", 15);
    expect_refusal(options, path, "PEM");
    remove(key_path);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void test_quiesce(void **state)
{
    (void)state;
    http_client c, late;
    http_exchange *x = ask_held(&c, "x");
    http_server_quiesce(app.server);
    http_server_quiesce(app.server);
    assert_false(client_open(&late, url()));
    client_close(&late);
    assert_true(http_alive(x));
    http_answer(x, 200, "text/plain", "still", 5);
    expect(&c, 200, "still");
    assert_string_equal(client_header(&c, "Connection"), "close");
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    wait_connections(0);
}

/* A request without an answer, a stream in its midst, a client that does not read, one that is half in. */
static void test_stop_in_the_midst(void **state)
{
    (void)state;
    static char block[1 << 20];
    http_client c[4];
    http_exchange *x[3];
    for (int i = 0; i < 3; i++) x[i] = ask_held(&c[i], "some body");
    http_begin(x[1], 200, "text/event-stream", true);
    assert_true(http_send(x[1], "data: 1\n\n", 9));
    http_begin(x[2], 200, "text/event-stream", true);
    for (int i = 0; i < 16; i++) assert_true(http_send(x[2], block, sizeof block));
    connect_to(&c[3]);
    assert_true(client_say(&c[3], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"));
    double until = clock_seconds() + 5;
    while (app.n_admitted < 4 && clock_seconds() < until) pause_for(0.01);
    http_server_stop(app.server);
    app.server = NULL;
    assert_int_equal(app.n_finished, 4);
    for (int i = 0; i < 3; i++) {
        size_t length;
        assert_false(http_alive(x[i]));
        assert_string_equal(http_body(x[i], &length), "some body");
        if (i == 0) http_begin(x[i], 200, "text/plain", false);
        assert_false(http_send(x[i], "more", 4));
        http_end(x[i]);
    }
    for (int i = 0; i < 4; i++) client_close(&c[i]);
}

/* The same at moments that nobody chose. */
static void *send_for_ever(void *context)
{
    http_exchange *x = context;
    http_begin(x, 200, "text/event-stream", true);
    while (http_send(x, "data: x\n\n", 9)) usleep(rand_r(&(unsigned){(unsigned)(size_t)x}) % 300);
    http_end(x);
    return NULL;
}

static void test_stop_any_time(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        enum { N = 6 };
        http_client c[N];
        pthread_t senders[N];
        start(usual());
        for (int i = 0; i < N; i++)
            assert_int_equal(pthread_create(&senders[i], NULL, send_for_ever, ask_held(&c[i], "")),
                             0);
        pause_for(0.003 * round);
        stop(NULL);
        for (int i = 0; i < N; i++) {
            pthread_join(senders[i], NULL);
            client_close(&c[i]);
        }
    }
}

/* ---- many ----------------------------------------------------------------------------------- */

static atomic_bool no_more;

/* Answers held requests by a stream of their bodies, a byte at a time. */
static void *answer_held(void *context)
{
    (void)context;
    while (!atomic_load(&no_more)) {
        pthread_mutex_lock(&app.lock);
        http_exchange *x = app.n_held ? app.held[--app.n_held] : NULL;
        pthread_mutex_unlock(&app.lock);
        if (!x) {
            usleep(200);
            continue;
        }
        size_t length;
        const char *body = http_body(x, &length);
        http_begin(x, 200, "text/plain", true);
        for (size_t i = 0; i < length; i++) http_send(x, body + i, 1);
        http_end(x);
    }
    return NULL;
}

static void *ask_many(void *context)
{
    int *n_right = context;
    enum { AT_ONCE = 8, ROUNDS = 20 };
    http_client c[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        if (!client_open(&c[i], url())) return NULL;
    for (int round = 0; round < ROUNDS; round++) {
        char body[AT_ONCE][64];
        for (int i = 0; i < AT_ONCE; i++) {
            snprintf(body[i], sizeof body[i], "body %d of %d by %p", i, round, context);
            client_ask(&c[i], "POST", (i + round) % 3 ? "/held" : "/echo", "", body[i]);
        }
        for (int i = 0; i < AT_ONCE; i++)
            *n_right += client_read(&c[i]) == 200 && !strcmp(c[i].body, body[i]);
    }
    for (int i = 0; i < AT_ONCE; i++) client_close(&c[i]);
    return NULL;
}

static void test_parallel(void **state)
{
    (void)state;
    enum { ASKERS = 6, ANSWERERS = 2 };
    pthread_t askers[ASKERS], answerers[ANSWERERS];
    int n_right[ASKERS] = {0};
    atomic_store(&no_more, false);
    for (int i = 0; i < ANSWERERS; i++) pthread_create(&answerers[i], NULL, answer_held, NULL);
    for (int i = 0; i < ASKERS; i++) pthread_create(&askers[i], NULL, ask_many, &n_right[i]);
    for (int i = 0; i < ASKERS; i++) pthread_join(askers[i], NULL);
    atomic_store(&no_more, true);
    for (int i = 0; i < ANSWERERS; i++) pthread_join(answerers[i], NULL);
    for (int i = 0; i < ASKERS; i++) assert_int_equal(n_right[i], 8 * 20);
    wait_connections(0);
}

/* More connections than are allowed wait for their turn. */
static void test_connection_limit(void **state)
{
    (void)state;
    http_options options = usual();
    options.max_connections = 4;
    options.error_body = NULL;
    start(options);
    http_client c[6];
    for (int i = 0; i < 6; i++) {
        connect_to(&c[i]);
        assert_true(client_ask(&c[i], "GET", "/held", "", NULL));
    }
    for (int i = 0; i < 4; i++) {
        http_answer(take(), 200, "text/plain", "x", 1);
    }
    pause_for(0.1);
    assert_int_equal(app.n_held, 0);
    assert_int_equal(http_server_connections(app.server), 4);
    int n_answered = 0;
    for (int i = 0; i < 6; i++) {
        c[i].patience = 0.2;
        bool answered = client_read(&c[i]) == 200;
        n_answered += answered;
        if (answered) client_close(&c[i]);
    }
    assert_int_equal(n_answered, 4);
    for (int i = 0; i < 2; i++) http_answer(take(), 200, "text/plain", "x", 1);
    for (int i = 0; i < 6; i++) {
        if (c[i].descriptor < 0) continue;
        c[i].patience = 10;
        expect(&c[i], 200, "x");
        client_close(&c[i]);
    }
    assert_int_equal(
        client_fetch(&c[0], url(), "POST", "/echo", "Transfer-Encoding: gzip\r\n", NULL), 400);
    assert_string_equal(client_header(&c[0], "Content-Type"), "text/plain; charset=utf-8");
    client_close(&c[0]);
    stop(NULL);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, start_usual, stop)

int main(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct CMUnitTest tests[] = {
        SERVED(test_plain),
        SERVED(test_requests),
        SERVED(test_keep_alive),
        SERVED(test_old_client),
        SERVED(test_later),
        SERVED(test_stream),
        SERVED(test_no_answer),
        SERVED(test_leaving),
        SERVED(test_unnoticed),
        SERVED(test_half_close),
        SERVED(test_slow_reader),
        SERVED(test_slow_senders),
        SERVED(test_damaged_requests),
        SERVED(test_rubbish),
        SERVED(test_long_heads),
        SERVED(test_long_bodies),
        SERVED(test_expect),
        SERVED(test_many_bodies),
        SERVED(test_addresses),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_tls),
        SERVED(test_quiesce),
        cmocka_unit_test_setup(test_stop_in_the_midst, start_usual),
        cmocka_unit_test(test_stop_any_time),
        SERVED(test_parallel),
        cmocka_unit_test(test_connection_limit),
    };
    int failed = cmocka_run_group_tests(tests, make_directory, remove_directory);
    curl_global_cleanup();
    return failed;
}

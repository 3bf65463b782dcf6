/* test_http.c - the HTTP side of the server: whole answers and streams sent by other threads, clients that
 * leave, where it listens, and how it stops. */
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
#include "http_app.h"
#include "http_client.h"
#include "scratch.h"
#include "serve/http.h"

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

/* What handlers see of a request. */
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
    /* several requests at once are answered in order */
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

/* A HEAD request is complete without a body. */
static void test_head_is_complete(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_ask(&c, "HEAD", "/hello", "", NULL));
    expect(&c, 200, "");
    wait_finished(1);
    assert_int_equal(app.last.status, 200);
    assert_int_equal(app.last.n_sent, 0);
    assert_true(app.last.complete);
    client_close(&c);
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
    http_exchange *x = take_exchange();
    http_begin(x, 200, "text/event-stream", true);
    assert_true(http_send(x, "data: 1\n\n", 9));
    http_end(x);
    expect(&c, 200, "data: 1\n\n");
    assert_null(client_header(&c, "Transfer-Encoding"));
    client_close(&c);
}

/* The answer is sent later, by another thread than the one that took the request. */
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
    assert_false(client_read_head(&c)); /* nothing is sent before the length is known */
    c.patience = 10;
    assert_true(http_send(x, "}", 1));
    assert_int_equal(http_unsent(x), 2);
    http_end(x);
    expect(&c, 201, "{}");
    assert_string_equal(client_header(&c, "Content-Length"), "2");
    /* a second time on the same connection */
    assert_true(client_ask(&c, "POST", "/held", "", "again"));
    http_answer(take_exchange(), 200, "text/plain", "done", 4);
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
    assert_true(http_send(x, "", 0)); /* sends the head */
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

/* If no answer was begun, the connection is closed. */
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

/* The server has not noticed yet that the client left. Sending fails without a signal. */
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
    http_answer(x, 200, "text/plain", "x", 1); /* the client is gone */
    wait_finished(2);
    wait_connections(0);
}

/* A client that sends its request and half-closes gets an answer that is ready at once. */
static void test_half_close(void **state)
{
    (void)state;
    http_client c;
    connect_to(&c);
    assert_true(client_say(&c, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
    client_half_close(&c);
    expect(&c, 200, "hello\n");
    client_close(&c);
    connect_to(&c); /* half-closed within a request */
    assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"));
    client_half_close(&c);
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
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
    options.host = "192.0.2.1"; /* not a local address */
    expect_refusal(options, "192.0.2.1:0", "cannot");
    options.host = "";
    expect_refusal(options, "host", "name");
    static const char *const hosts[] = {"localhost", "0.0.0.0", NULL, "::1"};
    for (size_t i = 0; i < COUNT(hosts); i++) {
        http_server *server = NULL;
        options.host = hosts[i];
        if (http_server_start(&options, &server, NULL) != DSMOE_OK) {
            assert_int_equal(i, 3); /* IPv6 may be missing */
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
    write_bytes("precious", 8); /* other files are never deleted */
    expect_refusal(options, path, "exists");
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    start(options);
    assert_string_equal(url(), where);
    assert_int_equal(client_fetch(&c, where, "GET", "/x", "", NULL), 200);
    assert_string_equal(c.body, "GET /x a=- b=- x=- peer=unix");
    client_close(&c);
    expect_refusal(options, path, "in use"); /* nor a socket in use */
    assert_int_equal(client_fetch(&c, where, "GET", "/x", "", NULL), 200);
    client_close(&c);
    /* the socket of a server that ended is replaced */
    char other[320];
    snprintf(other, sizeof other, "%s.left", path);
    assert_int_equal(link(path, other), 0);
    stop(NULL);
    assert_int_equal(access(path, F_OK), -1); /* removed at the end */
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

/* Made for this test: a self-signed certificate that protects nothing. */
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
    options.key = path; /* a certificate, not a key */
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

/* ---- stopping ------------------------------------------------------------------------------- */

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

/* A request without an answer, a stream in progress, a client that does not read, and a request that has
 * only half arrived. */
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
    while (n_admitted() < 4 && clock_seconds() < until) pause_for(0.01);
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

/* The same at random moments. */
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

/* Answers held requests by streaming their bodies, one byte at a time. */
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

/* Connections above the limit wait for their turn. */
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
        http_answer(take_exchange(), 200, "text/plain", "x", 1);
    }
    pause_for(0.1);
    assert_int_equal(n_admitted(), 4);
    assert_int_equal(http_server_connections(app.server), 4);
    int n_answered = 0;
    for (int i = 0; i < 6; i++) {
        c[i].patience = 0.2;
        bool answered = client_read(&c[i]) == 200;
        n_answered += answered;
        if (answered) client_close(&c[i]);
    }
    assert_int_equal(n_answered, 4);
    for (int i = 0; i < 2; i++) http_answer(take_exchange(), 200, "text/plain", "x", 1);
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

int main(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct CMUnitTest tests[] = {
        SERVED(test_plain),
        SERVED(test_requests),
        SERVED(test_keep_alive),
        SERVED(test_head_is_complete),
        SERVED(test_old_client),
        SERVED(test_later),
        SERVED(test_stream),
        SERVED(test_no_answer),
        SERVED(test_leaving),
        SERVED(test_unnoticed),
        SERVED(test_half_close),
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

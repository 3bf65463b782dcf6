/* test_http_hostile.c - the HTTP side of the server against slow and dishonest clients. */
#include "support.h"

#include <string.h>

#include "base/clock.h"
#include "http_app.h"
#include "http_client.h"

/* ---- slow clients --------------------------------------------------------------------------- */

enum { BLOCK = 64 * 1024, N_BLOCKS = 256 };
static char block[BLOCK];

/* More than the kernel buffers for a client that does not read. */
static void send_blocks(http_exchange *x)
{
    for (int i = 0; i < BLOCK; i++) block[i] = (char)('a' + i % 23);
    for (int i = 0; i < N_BLOCKS; i++) assert_true(http_send(x, block, BLOCK));
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_slow_reader(void **state)
{
    (void)state;
    http_client c, other;
    http_exchange *x = ask_held(&c, "");
    http_begin(x, 200, "application/octet-stream", true);
    send_blocks(x);
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

/* While the server waits for a request's head or body, silence or single bytes end the connection. An
 * answer may take any time to write, but the client must read it promptly. */
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
    http_client silent[N], slow[N], waiting, streaming, deaf;
    http_exchange *late = ask_held(&waiting, "x"), *half = ask_held(&streaming, "x"),
                  *unheard = ask_held(&deaf, "x");
    http_begin(half, 200, "text/event-stream", true);
    assert_true(http_send(half, "data: 1\n\n", 9));
    http_begin(unheard, 200, "text/event-stream", true);
    send_blocks(unheard);
    double cpu = cpu_seconds();
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
    assert_true(cpu_seconds() < cpu + 1); /* waiting takes no CPU time */
    assert_true(becomes_gone(unheard));
    http_end(unheard);
    client_close(&deaf);
    http_answer(late, 200, "text/plain", "late", 4);
    expect(&waiting, 200, "late");
    assert_true(http_send(half, "data: 2\n\n", 9));
    http_end(half);
    expect(&streaming, 200, "data: 1\n\ndata: 2\n\n");
    client_close(&waiting);
    client_close(&streaming);
    wait_connections(0);
}

/* ---- dishonest clients ---------------------------------------------------------------------- */

static void test_damaged_requests(void **state)
{
    (void)state;
#define POST "POST /echo HTTP/1.1\r\nHost: a\r\n"
    static const char *const cases[] = {
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
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

/* Bytes that are not HTTP end the connection, with or without a status. */
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

/* A head that is too long is refused before all of it has arrived. */
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
    assert_true(client_ask(&c, "POST", "/echo", "", body)); /* the longest that is allowed */
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
    /* refused because of its length alone */
    assert_true(
        client_say(&c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n"));
    expect(&c, 413, NULL);
    assert_true(client_is_closed(&c, 5));
    client_close(&c);
    /* a body that does not end */
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

/* All open requests share one limit. */
static void test_many_bodies(void **state)
{
    (void)state;
    static char body[MAX_BODY + 1];
    memset(body, 'c', MAX_BODY);
    http_client c[12], late;
    http_exchange *x[12];
    int n = 0;
    for (; n < 12; n++) { /* each takes up to twice its length */
        connect_to(&c[n]);
        assert_true(client_ask(&c[n], "POST", "/held", "", body));
        c[n].patience = 0.1;
        if (client_read(&c[n])) break;
        x[n] = take_exchange();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_slow_reader), SERVED(test_slow_senders), SERVED(test_damaged_requests),
        SERVED(test_rubbish),     SERVED(test_long_heads),   SERVED(test_long_bodies),
        SERVED(test_expect),      SERVED(test_many_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

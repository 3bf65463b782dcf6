/* test_remote.c - requests to another server: its address, what is shown of its answers, and servers that
 * misbehave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "fake_server.h"
#include "heard.h"

/* ---- one request --------------------------------------------------------------------------------------- */

typedef struct asked {
    char text[256];
    size_t length;
    bool had_enough;
    client_events events;
    dsmoe_error error;
} asked;

static bool show(void *context, const char *text, size_t length)
{
    asked *a = context;
    if (length >= sizeof a->text - a->length) length = sizeof a->text - 1 - a->length;
    memcpy(a->text + a->length, text, length);
    a->length += length;
    return !a->had_enough;
}

static remote_end ask(const remote_address *address, asked *a)
{
    remote *r;
    assert_int_equal(remote_open("test", address, &r), CLI_OK);
    a->events = (client_events){.show = show, .context = a};
    client_events_begin(&a->events);
    remote_end end = remote_post(r, "/v1/completions", "{}", 2, &a->events, &a->error);
    client_events_free(&a->events);
    remote_close(r);
    return end;
}

/* The result of one reply. */
static remote_end try_reply(const char *scheme, const fake_reply *reply, double max_silence,
                            asked *a)
{
    fake_server *s = fake_server_start(NULL, reply, 1);
    const remote_address address = {.url = fake_server_url(s, scheme), .max_silence = max_silence};
    remote_end end = ask(&address, a);
    fake_server_free(s);
    return end;
}

static void an_answer_is_shown(void **state)
{
    (void)state;
    asked a = {0};
    const fake_reply reply = {.first = STREAM_OK ":\n\n" DELTA("Hello") DELTA(" you") END("stop")
                                  USAGE("2") DONE};
    assert_int_equal(try_reply("http", &reply, 0, &a), REMOTE_ANSWERED);
    assert_string_equal(a.text, "Hello you");
    assert_int_equal(a.events.finish, CLIENT_FINISH_STOP);
    assert_int_equal(a.events.cost.n_predicted, 2);
}

static void the_end_is_the_end(void **state)
{
    (void)state;
    asked a = {0};
    const fake_reply holds = {.first = STREAM_OK DELTA("a") DONE, .holds = true};
    double start = cli_seconds();
    assert_int_equal(try_reply("http", &holds, 0, &a), REMOTE_ANSWERED);
    assert_true(cli_seconds() - start < 15);
    asked b = {.had_enough = true};
    const fake_reply endless = {.first = STREAM_OK, .repeated = DELTA("b"), .n_repeats = -1};
    assert_int_equal(try_reply("http", &endless, 0, &b), REMOTE_ANSWERED);
    assert_string_equal(b.text, "b");
}

static void bad_servers_are_named(void **state)
{
    (void)state;
    static const struct {
        fake_reply reply;
        remote_end end;
        const char *scheme, *words;
    } cases[] = {
        {{.first = STREAM_OK DELTA("a")}, REMOTE_FAILED, "http", "broke off before its end"},
        {{.first = STREAM_OK}, REMOTE_FAILED, "http", "broke off before its end"},
        {{.first = STREAM_OK "data: {\"choi\n\n"}, REMOTE_FAILED, "http", "not JSON"},
        {{.first = STREAM_OK DELTA("a") "data: {\"error\": {\"message\": \"it hangs\"}}\n\n"},
         REMOTE_FAILED,
         "http",
         "it hangs"},
        {{.first = JSON_OK "{\"choices\": []}"},
         REMOTE_FAILED,
         "http",
         "not text/event-stream but application/json"},
        {{.first = "HTTP/1.1 200 OK\r\n\r\ndata: [DONE]\n\n"},
         REMOTE_FAILED,
         "http",
         "does not name"},
        {{.first =
              "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 900\r\n\r\n" DELTA(
                  "a")},
         REMOTE_FAILED,
         "http",
         "broke off"},
        {{.first =
              "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n{\"error\": {\"message\": \"which key?\"}}"},
         REMOTE_FAILED,
         "http",
         "status 401: which key?"},
        {{.first = "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n<html>"},
         REMOTE_FAILED,
         "http",
         "status 502"},
        {{.first =
              "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"},
         REMOTE_FAILED,
         "http",
         "status 301: redirects are not followed"},
        {{.first = TOO_LONG}, REMOTE_TOO_LONG, "http", "the prompt has 99 tokens"},
        {{.first = ""}, REMOTE_FAILED, "http", "hung up without an answer"},
        {{.first = "220 mail.example.org ESMTP\r\n"}, REMOTE_FAILED, "http", "HTTP/0.9"},
        {{.first = "220 mail.example.org ESMTP\r\n", .is_deaf = true},
         REMOTE_FAILED,
         "https",
         "TLS: "},
        {{.first = STREAM_OK "data: ",
          .repeated = "0123456789012345678901234567890123456789",
          .n_repeats = -1},
         REMOTE_FAILED,
         "http",
         "a line of the answer has more than 16 MB"},
        {{.first = "HTTP/1.1 200 OK\r\n",
          .repeated = "X-Again: 0123456789012345678901234567890\r\n",
          .n_repeats = -1},
         REMOTE_FAILED,
         "http",
         "headers"},
        {{.first = "HTTP/1.1 500 Oh\r\n\r\n",
          .repeated = "0123456789012345678901234567890",
          .n_repeats = -1},
         REMOTE_FAILED,
         "http",
         "status 500"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        asked a = {0};
        remote_end end = try_reply(cases[i].scheme, &cases[i].reply, 0, &a);
        assert_has(a.error.message, cases[i].words);
        assert_int_equal(end, cases[i].end);
    }
}

static void silence_ends_an_answer_and_comments_do_not(void **state)
{
    (void)state;
    asked a = {0}, b = {0}, c = {0};
    const fake_reply silent = {.first = STREAM_OK DELTA("a"), .holds = true};
    assert_int_equal(try_reply("http", &silent, 2, &a), REMOTE_FAILED);
    assert_has(a.error.message, "sent nothing for");
    assert_string_equal(a.text, "a");
    const fake_reply mute = {.holds = true};
    assert_int_equal(try_reply("http", &mute, 2, &b), REMOTE_FAILED);
    assert_has(b.error.message, "sent nothing for");
    const fake_reply patient = {.first = STREAM_OK,
                                .repeated = ":\n\n",
                                .last = DELTA("late") DONE,
                                .n_repeats = 10,
                                .pause_ms = 400};
    assert_int_equal(try_reply("http", &patient, 3, &c), REMOTE_ANSWERED);
    assert_string_equal(c.text, "late");
}

static void nobody_there(void **state)
{
    (void)state;
    fake_server *s = fake_server_start(NULL, &(fake_reply){0}, 0);
    char url[64];
    snprintf(url, sizeof url, "%s", fake_server_url(s, "http"));
    fake_server_free(s);
    asked a = {0}, b = {0};
    assert_int_equal(ask(&(remote_address){.url = url}, &a), REMOTE_FAILED);
    assert_string_equal(a.error.message, "cannot connect: Connection refused");
    assert_int_equal(ask(&(remote_address){.unix_path = "/nonexistent/socket"}, &b), REMOTE_FAILED);
    assert_has(b.error.message, "cannot connect: ");
}

static void ctrl_c_closes_the_connection(void **state)
{
    (void)state;
    asked a = {0}, b = {0};
    cli_catch_interrupt();
    const fake_reply reply = {.first = STREAM_OK DELTA("begun"), .interrupts = true, .holds = true};
    double start = cli_seconds();
    assert_int_equal(try_reply("http", &reply, 0, &a), REMOTE_INTERRUPTED);
    cli_clear_interrupt();
    assert_string_equal(a.text, "begun");
    const fake_reply mute = {.interrupts = true, .holds = true};
    assert_int_equal(try_reply("http", &mute, 0, &b), REMOTE_INTERRUPTED);
    cli_clear_interrupt();
    assert_true(cli_seconds() - start < 15); /* the server saw the client leave */
}

/* ---- addresses ------------------------------------------------------------------------------------------ */

static void addresses_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *url, *name;
    } cases[] = {
        {"http://host:8080", "http://host:8080"},
        {"http://host:8080/", "http://host:8080"},
        {"http://host:8080/v1", "http://host:8080"},
        {"http://host:8080/v1/", "http://host:8080"},
        {"https://host/models/v1", "https://host/models"},
        {"https://host/models/", "https://host/models"},
        {"https://host/av1", "https://host/av1"},
        {"HTTP://v1", "http://v1"},
        {"host:8080", "http://host:8080"},
        {"[::1]:8080/v1", "http://[::1]:8080"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remote *r;
        assert_int_equal(remote_open("test", &(remote_address){.url = cases[i].url}, &r), CLI_OK);
        assert_string_equal(remote_name(r), cases[i].name);
        remote_close(r);
    }
}

static void refuse_address(const remote_address *address, const char *words)
{
    remote *r;
    listen_begin();
    int code = remote_open("test", address, &r);
    remote_close(r);
    listen_end();
    assert_int_equal(code, CLI_USAGE);
    assert_has(heard, words);
    assert_lacks(heard, "secret");
}

static void addresses_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "http://",
                                      "ftp://host",
                                      "file:///etc/passwd",
                                      "http://host/?a=b",
                                      "http://host/#a",
                                      "http://host:port",
                                      "http://ho st/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse_address(&(remote_address){.url = bad[i]}, "--url must be an address");
    refuse_address(&(remote_address){.url = "http://me:secret@host/"}, "--api-key");
    refuse_address(&(remote_address){.url = "http://host", .api_key = "secret\r\nX: y"}, "API key");
}

int main(void)
{
    static const char *const proxies[] = {"http_proxy",  "https_proxy", "all_proxy",
                                          "HTTPS_PROXY", "ALL_PROXY",   "DSMOE_API_KEY"};
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++) unsetenv(proxies[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_shown),
        cmocka_unit_test(the_end_is_the_end),
        cmocka_unit_test(bad_servers_are_named),
        cmocka_unit_test(silence_ends_an_answer_and_comments_do_not),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(ctrl_c_closes_the_connection),
        cmocka_unit_test(addresses_are_understood),
        cmocka_unit_test(addresses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

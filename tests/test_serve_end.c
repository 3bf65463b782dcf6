/* test_serve_end.c - stopping the server: what happens to requests that run, wait or are being sent to
 * their clients. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "held_engine.h"

/* ---- draining ---------------------------------------------------------------------------------- */

static void *drain(void *context) { return server_drain(context, 10) ? context : NULL; }

static void drains(void **state)
{
    (void)state;
    server_options o = served_options();
    server *s = start_server(&o);
    http_client client;
    hold(true);
    begin_asking(&client, s, "{\"prompt\": \"a\", \"max_tokens\": 30, \"ignore_eos\": true}");
    wait_for(s, "dsmoe_requests_running", 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, s), 0);
    sleep_seconds(0.05);
    json_node_free(ask(s, 503, "POST", "/v1/completions", "{\"prompt\": \"a\"}"));
    json_node_free(ask(s, 503, "GET", "/health", NULL));
    hold(false);
    void *drained;
    pthread_join(thread, &drained);
    assert_non_null(drained);
    assert_int_equal(client_read(&client), 200); /* the running request was finished */
    client_close(&client);
    server_free(s);
}

/* Asks for megabytes of tokens and does not read the answer yet. */
static void ask_for_much(http_client *client, server *s)
{
    enum { LENGTH = 3 << 20 };
    static const char head[] = "{\"content\": \"";
    char *body = malloc(LENGTH + 1);
    assert_non_null(body);
    memset(body, '7', LENGTH);
    memcpy(body, head, sizeof head - 1);
    strcpy(body + LENGTH - 2, "\"}");
    assert_true(client_open(client, server_url(s)));
    assert_true(client_ask(client, "POST", "/tokenize", "", body));
    assert_true(client_read_head(client));
    free(body);
}

static void *read_late(void *context)
{
    http_client *client = context;
    sleep_seconds(0.3);
    return client_read_body(client) ? context : NULL;
}

static pthread_t begin_to_read_late(http_client *client)
{
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_late, client), 0);
    return reader;
}

static void assert_all_was_read(pthread_t reader)
{
    void *whole;
    pthread_join(reader, &whole);
    assert_non_null(whole);
}

/* Refused requests must not cut off answers that are being sent. */
static void last_answers_are_sent(void **state)
{
    (void)state;
    server_options o = served_options();
    server *s = start_server(&o);
    http_client odd, slow;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_fetch(&odd, server_url(s), "GET", "/health",
                                      "Content-Length: 0\r\nContent-Length: 0\r\n", NULL),
                         400);
        client_close(&odd);
    }
    ask_for_much(&slow, s);
    pthread_t reader = begin_to_read_late(&slow);
    server_free(s);
    assert_all_was_read(reader);
    client_close(&slow);
}

/* Draining waits until clients have received their answers. Watchers are disconnected. */
static void drains_what_is_on_its_way(void **state)
{
    (void)state;
    server_options o = served_options();
    server *s = start_server(&o);
    http_client slow, watching, reading;
    assert_true(client_open(&watching, server_url(s)));
    assert_true(client_ask(&watching, "GET", "/routing", "", NULL));
    assert_true(client_read_head(&watching));
    assert_true(client_open(&reading, server_url(s))); /* its body never arrives */
    assert_true(client_say(&reading, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                                     "Content-Length: 99\r\n\r\n{"));
    ask_for_much(&slow, s);
    assert_false(server_drain(s, 0.05));
    pthread_t reader = begin_to_read_late(&slow);
    assert_true(server_drain(s, 10));
    assert_all_was_read(reader);
    assert_true(client_read_body(&watching));
    client_close(&slow);
    client_close(&watching);
    client_close(&reading);
    server_free(s);
}

/* Requests that wait, read or write, a watcher and an idle connection are all ended soon. */
static void ends_at_once(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_sequences = 1;
    server *s = start_server(&o);
    http_client writing, waiting, watching, idle;
    allow(2); /* the prompt and one token, so that the text has not ended when it is read */
    begin_asking(&writing, s, LONG_TEXT);
    assert_true(client_read_head(&writing));
    begin_asking(&waiting, s, "{\"prompt\": \"b\"}");
    wait_for(s, "dsmoe_requests_waiting", 1);
    assert_true(client_open(&watching, server_url(s)));
    assert_true(client_ask(&watching, "GET", "/routing", "", NULL));
    assert_true(client_open(&idle, server_url(s)));
    hold(false);
    double began = clock_seconds();
    server_free(s);
    assert_true(clock_seconds() - began < 5);
    assert_int_equal(client_read(&waiting), 503);
    const char *event, *last = NULL;
    char kept[512] = "";
    while ((event = client_event(&writing))) snprintf(kept, sizeof kept, "%s", last = event);
    assert_non_null(last);
    assert_non_null(strstr(kept, "\"error\"")); /* but no [DONE] */
    client_close(&writing);
    client_close(&waiting);
    client_close(&watching);
    client_close(&idle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drains),
        cmocka_unit_test(last_answers_are_sent),
        cmocka_unit_test(drains_what_is_on_its_way),
        cmocka_unit_test(ends_at_once),
    };
    return cmocka_run_group_tests(tests, make_served_model, remove_served_model);
}

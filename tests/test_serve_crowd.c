/* test_serve_crowd.c - the server with many clients: many at once, clients that leave, that read slowly,
 * that are too many, that are not allowed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "held_engine.h"
#include "scratch.h"

/* ---- many at once ------------------------------------------------------------------------------ */

enum { ASKERS = 12 };

typedef struct asker {
    server *s;
    int number;
    char *text;
} asker;

static void request_of(int number, char *body, size_t size)
{
    snprintf(body, size,
             "{\"max_tokens\": %d, \"temperature\": 1, \"seed\": %d, \"ignore_eos\": true, "
             "\"prompt\": [%d",
             10 + 3 * number, number, 1 + number);
    for (int i = 0; i < 17 * number; i++)
        snprintf(body + strlen(body), size - strlen(body), ",%d", 1 + (number + i * 31) % 250);
    snprintf(body + strlen(body), size - strlen(body), "]}");
}

static void *ask_once(void *context)
{
    asker *a = context;
    char body[4096];
    http_client client;
    request_of(a->number, body, sizeof body);
    if (client_fetch(&client, server_url(a->s), "POST", "/v1/completions", "", body) == 200)
        a->text = strdup(client.body);
    client_close(&client);
    return NULL;
}

static char *choice_of(const char *answer)
{
    json_node *node = parse_json(answer);
    char *text = strdup(string_at(node, "choices.0.text"));
    json_node_free(node);
    return text;
}

/* With slots for only some of the clients, each gets the same answer as alone. */
static void company_changes_nothing(void **state)
{
    (void)state;
    char *alone[ASKERS];
    server_options o = served_options();
    o.engine.n_sequences = 1;
    server *s = start_server(&o);
    for (int i = 0; i < ASKERS; i++) {
        asker a = {s, i, NULL};
        ask_once(&a);
        assert_non_null(a.text);
        alone[i] = choice_of(a.text);
        free(a.text);
    }
    server_free(s);
    const int places[] = {1, 3, 4, 16};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        o.engine.n_sequences = places[p];
        s = start_server(&o);
        pthread_t threads[ASKERS];
        asker askers[ASKERS];
        for (int i = 0; i < ASKERS; i++) {
            askers[i] = (asker){s, i, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, ask_once, &askers[i]), 0);
        }
        for (int i = 0; i < ASKERS; i++) {
            pthread_join(threads[i], NULL);
            assert_non_null(askers[i].text);
            char *text = choice_of(askers[i].text);
            assert_string_equal(text, alone[i]);
            free(text);
            free(askers[i].text);
        }
        wait_until_idle(s, 2);
        server_free(s);
    }
    for (int i = 0; i < ASKERS; i++) free(alone[i]);
}

/* Even if the texts being written fill a small batch with their tokens, prompts make progress. */
static void writers_do_not_starve_prompts(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_batch = 2;
    server *s = start_server(&o);
    http_client writing[2], late;
    hold(true);
    begin_asking(&writing[0], s, LONG_TEXT);
    wait_for(s, "dsmoe_requests_running", 1);
    begin_asking(&writing[1], s, LONG_TEXT);
    wait_for(s, "dsmoe_requests_waiting", 1);
    begin_asking(&late, s, "{\"prompt\": \"b\", \"max_tokens\": 3, \"ignore_eos\": true}");
    wait_for(s, "dsmoe_requests_waiting", 2);
    allow(20); /* enough for a tenth of the others' tokens */
    assert_int_equal(client_read(&late), 200);
    hold(false);
    for (int i = 0; i < 2; i++) client_close(&writing[i]);
    client_close(&late);
    server_free(s);
}

/* Sends a prompt of n_tokens tokens, to be continued by `max_tokens`. */
static void begin_reading(http_client *client, server *s, int n_tokens, int max_tokens)
{
    char body[2048];
    snprintf(body, sizeof body, "{\"max_tokens\": %d, \"ignore_eos\": true, \"prompt\": [1",
             max_tokens);
    for (int i = 1; i < n_tokens; i++) strcat(body, ",7");
    strcat(body, "]}");
    begin_asking(client, s, body);
}

/* A short prompt gets its first token within three passes, however long the prompt before it is, and a
 * text being written gets a token in each pass. */
static void long_prompts_hold_up_nobody(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_batch = 32;
    server *s = start_server(&o);
    http_client writing, long_one, short_one;
    hold(true);
    begin_asking(&writing, s, LONG_TEXT);
    wait_for(s, "dsmoe_requests_running", 1);
    begin_reading(&long_one, s, 240, 1);
    wait_for(s, "dsmoe_requests_waiting", 1);
    begin_reading(&short_one, s, 10, 1);
    wait_for(s, "dsmoe_requests_waiting", 2);
    allow(4); /* the current pass, which began without them, and three more */
    assert_int_equal(client_read(&short_one), 200);
    double end = clock_seconds() + 10;
    while (metric(s, "dsmoe_predicted_tokens_total") < 5) assert_true(clock_seconds() < end);
    hold(false);
    assert_int_equal(client_read(&long_one), 200);
    client_close(&writing);
    client_close(&long_one);
    client_close(&short_one);
    server_free(s);
}

/* ---- clients that leave -------------------------------------------------------------------------- */

static void leaving_frees_a_slot(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_sequences = 1;
    server *s = start_server(&o);
    http_client writing, waiting, other;
    allow(2); /* the prompt and one token, so that the text has not ended when it is read */
    begin_asking(&writing, s, LONG_TEXT);
    assert_true(client_read_head(&writing));
    assert_non_null(client_event(&writing));
    begin_asking(&waiting, s, LONG_TEXT);
    wait_for(s, "dsmoe_requests_waiting", 1);
    begin_asking(&other, s, "{\"prompt\": \"b\", \"max_tokens\": 3, \"ignore_eos\": true}");
    wait_for(s, "dsmoe_requests_waiting", 2);
    client_reset(&writing);
    client_close(&waiting); /* it never takes part in a pass */
    double before = metric(s, "dsmoe_predicted_tokens_total");
    hold(false);
    assert_int_equal(client_read(&other), 200);
    client_close(&other);
    wait_until_idle(s, 2);
    /* one token from the current pass, three for the third client, none for the others */
    assert_true(metric(s, "dsmoe_predicted_tokens_total") - before <= 4);
    server_free(s);
}

static void leaving_in_the_middle_of_a_prompt(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_batch = 16;
    server *s = start_server(&o);
    http_client client;
    hold(true);
    begin_reading(&client, s, 240, 1);
    wait_for(s, "dsmoe_requests_running", 1);
    client_close(&client);
    hold(false);
    wait_until_idle(s, 2);
    assert_true(metric(s, "dsmoe_prompt_tokens_total") <= 32);
    server_free(s);
}

/* The number of slots in this state. */
static int count_slots(server *s, const char *state)
{
    json_node *slots = ask(s, 200, "GET", "/slots", NULL);
    int n = 0;
    for (size_t i = 0; i < json_node_count(slots); i++)
        n += !strcmp(string_at(json_node_item(slots, i), "state"), state);
    json_node_free(slots);
    return n;
}

/* Reads a stream to its end; returns how many tokens have logprobs. Those may name the token of byte 0,
 * which the JSON parser used here refuses. */
static int count_logprobs(http_client *client)
{
    int n = 0;
    const char *event;
    while ((event = client_event(client)) && strcmp(event, "[DONE]"))
        for (const char *at = event; (at = strstr(at, "\"top_logprobs\"")); at++) n++;
    assert_non_null(event);
    return n;
}

/* A slow client's text waits for it, other texts do not, and nothing is lost. The test uses a Unix socket,
 * as the kernel buffers much less for it than this answer has. */
static void slow_readers_hold_up_only_themselves(void **state)
{
    (void)state;
    char file[320];
    snprintf(file, sizeof file, "%s/socket", directory);
    server_options o = served_options();
    o.socket_path = file;
    o.max_unsent = 2000;
    server *s = start_server(&o);
    http_client slow;
    assert_true(client_open(&slow, server_url(s)));
    assert_true(client_ask(
        &slow, "POST", "/v1/chat/completions", "",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 200, "
        "\"ignore_eos\": true, \"stream\": true, \"logprobs\": true, "
        "\"top_logprobs\": 20}"));
    double before = -1, now, end = clock_seconds() + 10;
    while ((now = metric(s, "dsmoe_predicted_tokens_total")) != before ||
           !count_slots(s, "paused")) {
        before = now;
        assert_true(clock_seconds() < end);
        sleep_seconds(0.1);
    }
    assert_true(before > 0 && before < 200);
    for (int i = 0; i < 3; i++)
        json_node_free(ask(s, 200, "POST", "/v1/completions",
                           "{\"prompt\": \"b\", \"max_tokens\": 20, \"ignore_eos\": true}"));
    assert_int_equal(count_slots(s, "paused"), 1);
    assert_true(metric(s, "dsmoe_predicted_tokens_total") == before + 60);
    assert_true(client_read_head(&slow));
    assert_int_equal(count_logprobs(&slow), 200);
    client_close(&slow);
    wait_until_idle(s, 2);
    server_free(s);
}

static void begin_watching(http_client *client, server *s)
{
    assert_true(client_open(client, server_url(s)));
    assert_true(client_ask(client, "GET", "/routing", "", NULL));
}

/* A quiet server checks its watchers rarely, but watchers that have left must not take up the places of
 * others. */
static void watchers_who_left_make_room(void **state)
{
    (void)state;
    enum { MOST = 16 };
    server_options o = served_options();
    server *s = start_server(&o);
    http_client watching[MOST], late;
    for (int i = 0; i < MOST; i++) {
        begin_watching(&watching[i], s);
        assert_true(client_read_head(&watching[i]));
        assert_int_equal(watching[i].status, 200);
    }
    begin_watching(&late, s);
    assert_int_equal(client_read(&late), 503);
    assert_non_null(strstr(late.body, "16 clients are watching already"));
    client_close(&late);
    for (int i = 0; i < MOST; i++) client_close(&watching[i]);
    begin_watching(&late, s);
    assert_true(client_read_head(&late));
    assert_int_equal(late.status, 200);
    client_close(&late);
    server_free(s);
}

/* A watcher too many is refused in the middle of a pass, too. */
static void watchers_come_in_the_middle_of_a_pass(void **state)
{
    (void)state;
    enum { MORE = 17 };
    server_options o = served_options();
    server *s = start_server(&o);
    http_client watching[MORE], client;
    hold(true);
    begin_asking(&client, s, "{\"prompt\": \"a\", \"max_tokens\": 2}");
    wait_for(s, "dsmoe_requests_running", 1);
    for (int i = 0; i < MORE; i++) begin_watching(&watching[i], s);
    wait_for(s, "dsmoe_connections", MORE + 2); /* one of them asks for this metric */
    sleep_seconds(0.05);
    hold(false);
    int n_refused = 0;
    for (int i = 0; i < MORE; i++) {
        assert_true(client_read_head(&watching[i]));
        if (watching[i].status == 200) continue;
        assert_true(client_read_body(&watching[i]));
        assert_non_null(strstr(watching[i].body, "16 clients are watching already"));
        n_refused++;
    }
    assert_int_equal(n_refused, 1);
    for (int i = 0; i < MORE; i++) client_close(&watching[i]);
    client_close(&client);
    server_free(s);
}

/* ---- too many requests, too long requests ---------------------------------------------------------- */

static void too_many_are_told_to_come_back(void **state)
{
    (void)state;
    server_options o = served_options();
    o.engine.n_sequences = 1;
    o.max_waiting = 2;
    server *s = start_server(&o);
    http_client clients[3], late;
    hold(true);
    for (int i = 0; i < 3; i++) {
        begin_asking(&clients[i], s,
                     "{\"prompt\": \"a\", \"max_tokens\": 2, \"ignore_eos\": true}");
        wait_for(s, i ? "dsmoe_requests_waiting" : "dsmoe_requests_running", i ? i : 1);
    }
    assert_int_equal(
        client_fetch(&late, server_url(s), "POST", "/v1/completions", "", "{\"prompt\": \"a\"}"),
        429);
    assert_non_null(client_header(&late, "Retry-After"));
    client_close(&late);
    hold(false);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_read(&clients[i]), 200);
        client_close(&clients[i]);
    }
    server_free(s);
}

/* Requests for which there are free slots wait only for the current pass and do not count as too many. */
static void free_places_are_no_queue(void **state)
{
    (void)state;
    server_options o = served_options(); /* four slots */
    o.max_waiting = 1;
    server *s = start_server(&o);
    http_client clients[5], late;
    hold(true);
    for (int i = 0; i < 5; i++) {
        begin_asking(&clients[i], s,
                     "{\"prompt\": \"a\", \"max_tokens\": 2, \"ignore_eos\": true}");
        wait_for(s, i ? "dsmoe_requests_waiting" : "dsmoe_requests_running", i ? i : 1);
    }
    int status =
        client_fetch(&late, server_url(s), "POST", "/v1/completions", "", "{\"prompt\": \"a\"}");
    assert_int_equal(status, 429);
    client_close(&late);
    hold(false);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(client_read(&clients[i]), 200);
        client_close(&clients[i]);
    }
    server_free(s);
}

static void time_is_limited(void **state)
{
    (void)state;
    server_options o = served_options();
    o.max_seconds = 0.05;
    server *s = start_server(&o);
    http_client client;
    hold(true);
    begin_asking(&client, s, "{\"prompt\": \"a\"}");
    sleep_seconds(0.1);
    hold(false);
    assert_int_equal(client_read(&client), 504);
    client_close(&client);
    server_free(s);
}

static void health_knows_a_hanging_engine(void **state)
{
    (void)state;
    server_options o = served_options();
    o.hang_seconds = 0.05;
    server *s = start_server(&o);
    http_client client;
    hold(true);
    begin_asking(&client, s, "{\"prompt\": \"a\", \"max_tokens\": 2}");
    sleep_seconds(0.2);
    json_node_free(ask(s, 503, "GET", "/health", NULL));
    hold(false);
    assert_int_equal(client_read(&client), 200);
    client_close(&client);
    json_node_free(ask(s, 200, "GET", "/health", NULL));
    server_free(s);
}

/* ---- access ------------------------------------------------------------------------------------- */

static int status_of(server *s, const char *path_asked, const char *headers)
{
    http_client client;
    int status = client_fetch(&client, server_url(s), "GET", path_asked, headers, NULL);
    client_close(&client);
    return status;
}

static void keys_and_origins(void **state)
{
    (void)state;
    static const char *const keys[] = {"sesame", "other"};
    server_options o = served_options();
    o.api_keys = keys;
    o.n_api_keys = 2;
    server *s = start_server(&o);
    assert_int_equal(status_of(s, "/v1/models", ""), 401);
    assert_int_equal(status_of(s, "/v1/models", "Authorization: Bearer sesam\r\n"), 401);
    assert_int_equal(status_of(s, "/v1/models", "Authorization: Bearer sesame\r\n"), 200);
    assert_int_equal(status_of(s, "/v1/models", "X-Api-Key: other\r\n"), 200);
    assert_int_equal(status_of(s, "/routing", ""), 401);
    assert_int_equal(status_of(s, "/metrics", ""), 401);
    assert_int_equal(status_of(s, "/health", ""), 200);
    assert_int_equal(status_of(s, "/", ""), 200);
    assert_int_equal(status_of(s, "/health", "Origin: http://localhost.evil.com\r\n"), 403);
    assert_int_equal(status_of(s, "/health", "Origin: http://localhost:3000\r\n"), 200);
    server_free(s);
}

static bool has_header(const http_client *client, const char *name, const char *value)
{
    const char *is = client_header(client, name);
    return is && !strcmp(is, value);
}

/* The official client sends its own headers (x-stainless-…), for which a browser asks permission first. A
 * page must be able to read why it was refused. */
static void pages_elsewhere(void **state)
{
    (void)state;
    static const char *const keys[] = {"sesame"}, *const origins[] = {"https://chat.example"};
    static const char origin[] = "Origin: https://chat.example\r\n";
    server_options o = served_options();
    o.api_keys = keys;
    o.cors_origins = origins;
    o.n_api_keys = o.n_cors_origins = 1;
    server *s = start_server(&o);
    http_client client;
    assert_int_equal(
        client_fetch(&client, server_url(s), "OPTIONS", "/v1/chat/completions", origin, NULL), 204);
    assert_true(has_header(&client, "Access-Control-Allow-Origin", "https://chat.example"));
    assert_true(has_header(&client, "Access-Control-Allow-Headers", "Authorization, *"));
    assert_non_null(strstr(client_header(&client, "Access-Control-Allow-Methods"), "POST"));
    client_close(&client);
    assert_int_equal(client_fetch(&client, server_url(s), "GET", "/v1/models", origin, NULL), 401);
    assert_true(has_header(&client, "Access-Control-Allow-Origin", "https://chat.example"));
    assert_true(has_header(&client, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After"));
    client_close(&client);
    assert_int_equal(client_fetch(&client, server_url(s), "GET", "/v1/models",
                                  "Origin: https://other.example\r\n", NULL),
                     403);
    assert_null(client_header(&client, "Access-Control-Allow-Origin"));
    client_close(&client);
    server_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(writers_do_not_starve_prompts),
        cmocka_unit_test(long_prompts_hold_up_nobody),
        cmocka_unit_test(leaving_frees_a_slot),
        cmocka_unit_test(leaving_in_the_middle_of_a_prompt),
        cmocka_unit_test(slow_readers_hold_up_only_themselves),
        cmocka_unit_test(watchers_who_left_make_room),
        cmocka_unit_test(watchers_come_in_the_middle_of_a_pass),
        cmocka_unit_test(too_many_are_told_to_come_back),
        cmocka_unit_test(free_places_are_no_queue),
        cmocka_unit_test(time_is_limited),
        cmocka_unit_test(health_knows_a_hanging_engine),
        cmocka_unit_test(keys_and_origins),
        cmocka_unit_test(pages_elsewhere),
    };
    return cmocka_run_group_tests(tests, make_served_model, remove_served_model);
}

/* test_serve_lora.c - adapters of a server: the list, scales for all requests and for one, different
 * adapters at the same time, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt/peft.h"
#include "base/rng.h"
#include "scratch.h"
#include "serve_fixture.h"

enum { N_ADAPTERS = 2, RANK = 4 };

static dsmoe_adapter *adapters[N_ADAPTERS];
static char folders[N_ADAPTERS][400];

/* Makes an adapter with random numbers for all projections of the model. */
static void make_adapter(int number)
{
    const dsmoe_model *model = served_model();
    size_t n = dsmoe_model_tensor_count(model);
    low_rank *of = calloc(n + 1, sizeof *of);
    float *numbers = malloc((size_t)RANK * 300 * sizeof *numbers);
    dsmoe_error error = {0};
    for (int i = 0; i < RANK * 300; i++)
        numbers[i] =
            0.2f *
            (float)((double)(rng_bits((uint64_t)number + 1, 1, (uint64_t)i) >> 11) * 0x1p-52 - 1.0);
    for (size_t i = 0; i < n; i++)
        if (strstr(dsmoe_model_tensor(model, i).name, "_proj"))
            of[i + 1] =
                (low_rank){.a = numbers, .b = numbers + i % 17, .rank = RANK, .scale = 1.0f};
    adapter table = {of, (int64_t)n + 1, RANK};
    snprintf(folders[number], sizeof folders[number], "%s/adapter-%d", directory, number);
    if (peft_write_table(&table, model, folders[number], NULL, &error) ||
        dsmoe_adapter_open(folders[number], model, &adapters[number], &error))
        fail_msg("%s", error.message);
    free(numbers);
    free(of);
}

static int make_all(void **state)
{
    make_served_model(state);
    for (int i = 0; i < N_ADAPTERS; i++) make_adapter(i);
    serve_adapters((const dsmoe_adapter *const *)adapters, N_ADAPTERS);
    return 0;
}

static int remove_all(void **state)
{
    static const char *const names[] = {PEFT_CONFIG, PEFT_WEIGHTS};
    char file[900];
    for (int i = 0; i < N_ADAPTERS; i++) {
        dsmoe_adapter_free(adapters[i]);
        for (int j = 0; j < 2; j++) {
            snprintf(file, sizeof file, "%s/%s", folders[i], names[j]);
            remove(file);
        }
        rmdir(folders[i]);
    }
    return remove_served_model(state);
}

/* The text of an answer of twelve tokens, always the most likely ones; `more` are further members. To be
 * freed. */
static char *text_of(server *s, const char *more)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"prompt\": \"Once upon a time there was a little cat that sat on the mat and looked "
        "at the moon over the hill\", \"max_tokens\": 12, \"temperature\": 0, "
        "\"ignore_eos\": true%s}",
        more);
    json_node *answer = ask(s, 200, "POST", "/v1/completions", body);
    char *text = strdup(string_at(answer, "choices.0.text"));
    json_node_free(answer);
    return text;
}

static void set_scales(server *s, const char *body)
{
    json_node *answer = ask(s, 200, "POST", "/lora-adapters", body);
    assert_true(json_node_bool(value_at(answer, "success")));
    json_node_free(answer);
}

static void lists_and_sets(void **state)
{
    (void)state;
    server_options o = served_options();
    server *s = start_server(&o);
    json_node *list = ask(s, 200, "GET", "/lora-adapters", NULL);
    assert_int_equal(json_node_count(list), N_ADAPTERS);
    assert_int_equal(integer_at(list, "1.id"), 1);
    assert_string_equal(string_at(list, "1.path"), folders[1]);
    assert_true(number_at(list, "0.scale") == 1);
    json_node_free(list);
    set_scales(s, "[{\"id\": 1, \"scale\": 0.25}]");
    list = ask(s, 200, "GET", "/lora-adapters", NULL);
    assert_true(number_at(list, "0.scale") == 0);
    assert_true(number_at(list, "1.scale") == 0.25);
    json_node_free(list);
    server_free(s);
}

/* The same scales give the same text, however they are given and whatever earlier texts left in pages. */
static void scales_decide(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "[]", "[{\"id\": 0, \"scale\": 1}]", "[{\"id\": 1, \"scale\": 1}]",
        "[{\"id\": 1, \"scale\": 0.5}, {\"id\": 0, \"scale\": 1}]"};
    enum { N = sizeof wanted / sizeof *wanted };
    char *by_all[N], *by_request[N], more[200];
    server_options o = served_options();
    server *s = start_server(&o);
    for (int i = 0; i < N; i++) {
        set_scales(s, wanted[i]);
        by_all[i] = text_of(s, "");
    }
    set_scales(s, "[{\"id\": 0, \"scale\": -3}]");
    for (int i = N - 1; i >= 0; i--) {
        snprintf(more, sizeof more, ", \"lora\": %s", wanted[i]);
        by_request[i] = text_of(s, more);
    }
    for (int i = 0; i < N; i++) {
        assert_string_equal(by_all[i], by_request[i]);
        for (int j = 0; j < i; j++) assert_string_not_equal(by_all[i], by_all[j]);
    }
    /* without adapters the answer is the same as with all scales 0 */
    server_free(s);
    serve_adapters(NULL, 0);
    s = start_server(&o);
    char *plain = text_of(s, ", \"lora\": []");
    assert_string_equal(plain, by_all[0]);
    json_node *list = ask(s, 200, "GET", "/lora-adapters", NULL);
    assert_int_equal(json_node_count(list), 0);
    json_node_free(list);
    json_node_free(ask(s, 501, "POST", "/completion",
                       "{\"prompt\": \"a\", \"lora\": [{\"id\": 0, \"scale\": 1}]}"));
    server_free(s);
    serve_adapters((const dsmoe_adapter *const *)adapters, N_ADAPTERS);
    free(plain);
    for (int i = 0; i < N; i++) {
        free(by_all[i]);
        free(by_request[i]);
    }
}

/* Four texts at a time with different adapters, which do not affect each other. */
static void different_ones_at_once(void **state)
{
    (void)state;
    static const char *const lora[] = {"[]", "[{\"id\": 0, \"scale\": 1}]",
                                       "[{\"id\": 1, \"scale\": 1}]",
                                       "[{\"id\": 0, \"scale\": 0.5}]"};
    static const char body[] =
        "{\"prompt\": \"the cat sat\", \"max_tokens\": 40, \"temperature\": 0, "
        "\"ignore_eos\": true, \"lora\": %s}";
    enum { N = 4 };
    server_options o = served_options();
    server *s = start_server(&o);
    http_client clients[N];
    char *texts[N], request[300];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) { /* first one after another, then together */
            snprintf(request, sizeof request, body, lora[i]);
            assert_true(client_open(&clients[i], server_url(s)));
            assert_true(client_ask(&clients[i], "POST", "/v1/completions", "", request));
            if (round == 0) assert_int_equal(client_read(&clients[i]), 200);
        }
        for (int i = 0; i < N; i++) {
            if (round == 1) assert_int_equal(client_read(&clients[i]), 200);
            json_node *answer = parse_json(clients[i].body);
            if (round == 0) texts[i] = strdup(string_at(answer, "choices.0.text"));
            assert_string_equal(texts[i], string_at(answer, "choices.0.text"));
            json_node_free(answer);
            client_close(&clients[i]);
        }
    }
    for (int i = 0; i < N; i++) free(texts[i]);
    server_free(s);
}

static void refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "5",
        "{}",
        "[1]",
        "[{\"id\": 0}]",
        "[{\"scale\": 1}]",
        "[{\"id\": 2, \"scale\": 1}]",
        "[{\"id\": -1, \"scale\": 1}]",
        "[{\"id\": 0.5, \"scale\": 1}]",
        "[{\"id\": 0, \"scale\": \"1\"}]",
        "[{\"id\": 0, \"scale\": 1e9}]",
        "[{\"id\": 0, \"scale\": 1}, {\"id\": 0, \"scale\": 1}]",
    };
    server_options o = served_options();
    server *s = start_server(&o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"max_tokens\": 1, \"lora\": %s}", bad[i]);
        json_node *answer = ask(s, 400, "POST", "/completion", body);
        assert_string_equal(string_at(answer, "error.param"), "lora");
        json_node_free(answer);
        json_node_free(ask(s, 400, "POST", "/lora-adapters", bad[i]));
    }
    json_node_free(ask(s, 400, "POST", "/lora-adapters", "["));
    http_client client;
    assert_int_equal(client_fetch(&client, server_url(s), "DELETE", "/lora-adapters", "", NULL),
                     405);
    assert_string_equal(client_header(&client, "Allow"), "GET, POST");
    client_close(&client);
    json_node *list = ask(s, 200, "GET", "/lora-adapters", NULL);
    assert_true(number_at(list, "0.scale") == 1); /* the refused request changed nothing */
    json_node_free(list);
    server_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_sets),
        cmocka_unit_test(scales_decide),
        cmocka_unit_test(different_ones_at_once),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}

/* test_voice_remote.c - another server used by chat and generate: which requests it gets for options,
 * prompts and conversations, and how texts end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/voice.h"
#include "fake_server.h"
#include "heard.h"
#include "scratch.h"

enum { N_ROWS = RUNNER_N_OPTIONS };

/* A voice opened with the options of a command line. */
typedef struct opened {
    runner_options options;
    option_row rows[N_ROWS];
    bool given[N_ROWS];
    voice_order order;
    voice *v;
    int code;
} opened;

static void open_voice(opened *o, int argc, char **argv)
{
    *o = (opened){.options.n_predict = -1};
    runner_options_rows(&o->options, o->rows);
    o->order = (voice_order){.command = "test",
                             .options = &o->options,
                             .rows = o->rows,
                             .n_rows = N_ROWS,
                             .given = o->given,
                             .tokenizer_hint = ""};
    o->code = options_parse_given("test", "", o->rows, N_ROWS, argc, argv, NULL, o->given);
    if (o->code < 0) o->code = voice_check(&o->order);
    if (o->code == CLI_OK) o->code = voice_open(&o->order, &o->v);
}

#define OPEN(o, ...)                                                                               \
    open_voice(o, (int)(sizeof((char *[]){"test", __VA_ARGS__}) / sizeof(char *)),                 \
               (char *[]){"test", __VA_ARGS__})

static void only_what_was_given_is_sent(void **state)
{
    (void)state;
    const fake_reply replies[] = {{.first = MODELS},
                                  {.first = STREAM_OK DELTA("x") END("stop") DONE}};
    fake_server *s = fake_server_start(NULL, replies, 2);
    opened o;
    stream out = {0};
    voice_result result = {0};
    listen_begin();
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"), "--api-key", "k3y");
    assert_int_equal(o.code, CLI_OK);
    assert_int_equal(o.v->kind->take_prompt(o.v, "-p", "say \"\xc3\xbc\"\n", 9), CLI_OK);
    o.v->kind->go_on(o.v, &out, &result);
    listen_end();
    fake_server_join(s);
    assert_int_equal(result.end, RUNNER_EOS);
    assert_has(fake_server_request(s, 0), "GET /v1/models HTTP/1.1\r\n");
    assert_has(fake_server_request(s, 0), "Authorization: Bearer k3y\r\n");
    const char *request = fake_server_request(s, 1);
    assert_has(request, "POST /v1/completions HTTP/1.1\r\n");
    assert_has(request, "Authorization: Bearer k3y\r\n");
    assert_has(request, "Content-Type: application/json\r\n");
    assert_string_equal(strstr(request, "\r\n\r\n") + 4,
                        "{\"model\": \"moe \\\"1\\\"\", \"stream\": true, \"stream_options\": "
                        "{\"include_usage\": true}, \"prompt\": \"say \\\"\xc3\xbc\\\"\\n\"}");
    assert_int_equal(out.length, 1);
    stream_free(&out);
    voice_close(o.v);
    fake_server_free(s);
}

static void everything_that_was_given_is_sent(void **state)
{
    (void)state;
    static const char *const members[] = {"\"temperature\": 0.5,",
                                          "\"top_k\": 7,",
                                          "\"top_p\": 1,",
                                          "\"min_p\": 0,",
                                          "\"repeat_penalty\": 2,",
                                          "\"repeat_last_n\": -1,",
                                          "\"presence_penalty\": 0,",
                                          "\"frequency_penalty\": -1,",
                                          "\"logit_bias\": {\"5\": 3, \"6\": -100},",
                                          "\"stop\": [\"a\\\"\", \"b\"],",
                                          "\"ignore_eos\": true,",
                                          "\"max_tokens\": 0,",
                                          "\"seed\": 9,"};
    const fake_reply replies[] = {
        {.first = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
        {.first = STREAM_OK DONE}};
    fake_server *s = fake_server_start(NULL, replies, 2);
    opened o;
    stream out = {0};
    voice_result result = {0};
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"), "--temp", "0.5", "--top-k", "7",
         "--top-p", "1", "--min-p", "0", "--repeat-penalty", "2", "--repeat-last-n", "-1",
         "--presence-penalty", "0", "--frequency-penalty", "-1", "-l", "5:1", "-l", "6-inf", "-l",
         "5:2", "--stop", "a\"", "--stop", "b", "--ignore-eos", "-n", "0", "-s", "9");
    assert_int_equal(o.code, CLI_OK);
    assert_int_equal(o.v->kind->take_prompt(o.v, "-p", "x", 1), CLI_OK);
    o.v->kind->go_on(o.v, &out, &result);
    fake_server_join(s);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        assert_has(fake_server_request(s, 1), members[i]);
    assert_lacks(fake_server_request(s, 1), "\"model\"");
    assert_lacks(fake_server_request(s, 1), "Authorization");
    voice_close(o.v);
    fake_server_free(s);
}

static void talk_about(conversation *talk, int n_turns)
{
    assert_true(conversation_add(talk, "system", "brief", 5));
    for (int i = 0; i < n_turns; i++) {
        char question[16];
        snprintf(question, sizeof question, "question %d", i);
        assert_true(conversation_add(talk, "user", question, strlen(question)));
        if (i + 1 < n_turns) assert_true(conversation_add(talk, "assistant", "answer", 6));
    }
}

static void the_oldest_turns_make_room(void **state)
{
    (void)state;
    const fake_reply replies[] = {{.first = MODELS},
                                  {.first = TOO_LONG},
                                  {.first = TOO_LONG},
                                  {.first = STREAM_OK DELTA("yes") END("stop") DONE}};
    fake_server *s = fake_server_start(NULL, replies, 4);
    opened o;
    stream out = {0};
    voice_result result = {0};
    conversation talk = {0};
    talk_about(&talk, 3);
    listen_begin();
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"));
    assert_int_equal(o.code, CLI_OK);
    o.v->kind->answer(o.v, &talk, &out, &result);
    listen_end();
    fake_server_join(s);
    assert_int_equal(result.end, RUNNER_EOS);
    assert_int_equal(result.n_dropped, 4);
    assert_true(result.began);
    assert_int_equal(talk.count, 2);
    assert_has(fake_server_request(s, 1), "POST /v1/chat/completions HTTP/1.1\r\n");
    assert_has(fake_server_request(s, 1), "question 0");
    assert_lacks(fake_server_request(s, 2), "question 0");
    assert_has(fake_server_request(s, 3), "{\"role\": \"system\", \"content\": \"brief\"}");
    assert_lacks(fake_server_request(s, 3), "question 1");
    assert_has(fake_server_request(s, 3), "{\"role\": \"user\", \"content\": \"question 2\"}");
    conversation_free(&talk);
    stream_free(&out);
    voice_close(o.v);
    fake_server_free(s);
}

/* Answers one question and returns the voice's result. */
static voice_result answer_with(const char *reply, char *limit, char *text, bool continues)
{
    const fake_reply replies[] = {{.first = MODELS}, {.first = reply}};
    fake_server *s = fake_server_start(NULL, replies, 2);
    opened o;
    stream out = {0};
    voice_result result = {0};
    conversation talk = {0};
    talk_about(&talk, 1);
    listen_begin();
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"), "-n", limit);
    assert_int_equal(o.code, CLI_OK);
    if (continues) {
        o.v->kind->take_prompt(o.v, "-p", "x", 1);
        o.v->kind->go_on(o.v, &out, &result);
    } else {
        o.v->kind->answer(o.v, &talk, &out, &result);
    }
    if (result.end == RUNNER_FAILED)
        assert_int_equal(voice_failure(o.v, &result.error), CLI_FAILURE);
    stream_end(&out);
    o.v->kind->report(o.v);
    listen_end();
    snprintf(text, 64, "%.*s", (int)out.length, out.length ? out.text : "");
    conversation_free(&talk);
    stream_free(&out);
    voice_close(o.v);
    fake_server_free(s);
    return result;
}

static void ends_are_told_apart(void **state)
{
    (void)state;
    char text[64];
    const char *full = STREAM_OK DELTA("a") END("length") USAGE("5") DONE;
    assert_int_equal(answer_with(full, "5", text, false).end, RUNNER_LIMIT);
    assert_int_equal(answer_with(full, "6", text, false).end, RUNNER_FULL);
    assert_int_equal(answer_with(full, "-1", text, false).end, RUNNER_FULL);
    assert_has(heard, "prompt: 7 tokens in ");
    assert_has(heard, "; decode: 5 tokens in ");
    voice_result r = answer_with(STREAM_OK DELTA("half") DELTA(" an"), "9", text, false);
    assert_int_equal(r.end, RUNNER_FAILED);
    assert_true(r.began);
    assert_string_equal(text, "half an");
    assert_has(heard, "dsmoe test: http://127.0.0.1:");
    assert_has(heard, "the answer broke off");
    r = answer_with(TOO_LONG, "9", text, false);
    assert_int_equal(r.end, RUNNER_FULL);
    assert_false(r.began);
    assert_has(r.error.message, "99 tokens");
    r = answer_with(TOO_LONG, "9", text, true);
    assert_int_equal(r.end, RUNNER_FAILED);
    assert_has(heard, "99 tokens");
    r = answer_with(STREAM_OK END("stop") DONE, "9", text, false);
    assert_int_equal(r.end, RUNNER_EOS);
    assert_true(r.began);
}

static void another_seed_each_time(void **state)
{
    (void)state;
    const char *stream_end_bytes = STREAM_OK DELTA("a") END("stop") DONE;
    const fake_reply replies[] = {{.first = MODELS},
                                  {.first = stream_end_bytes},
                                  {.first = stream_end_bytes},
                                  {.first = stream_end_bytes}};
    fake_server *s = fake_server_start(NULL, replies, 4);
    opened o;
    stream out = {0};
    listen_begin();
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"));
    assert_int_equal(o.code, CLI_OK);
    o.v->kind->take_prompt(o.v, "-p", "x", 1);
    for (int i = 0; i < 3; i++) {
        voice_result result = {0};
        o.v->kind->go_on(o.v, &out, &result);
        assert_int_equal(o.v->kind->reseed(o.v), CLI_OK);
    }
    listen_end();
    fake_server_join(s);
    assert_lacks(fake_server_request(s, 1), "\"seed\"");
    const char *second = strstr(fake_server_request(s, 2), "\"seed\": ");
    const char *third = strstr(fake_server_request(s, 3), "\"seed\": ");
    assert_true(second && third);
    assert_int_equal(atoll(third + 8), atoll(second + 8) + 1);
    stream_free(&out);
    voice_close(o.v);
    fake_server_free(s);
}

static void a_unix_socket_needs_no_url(void **state)
{
    (void)state;
    const fake_reply replies[] = {{.first = MODELS},
                                  {.first = STREAM_OK DELTA("x") END("stop") DONE}};
    fake_server *s = fake_server_start(path, replies, 2);
    opened o;
    stream out = {0};
    voice_result result = {0};
    setenv("DSMOE_API_KEY", "from the air", 1);
    listen_begin();
    OPEN(&o, "--unix", path);
    voice_close(o.v);
    listen_end();
    assert_int_equal(o.code, CLI_USAGE);
    assert_has(heard, "API key");
    assert_lacks(heard, "air");
    setenv("DSMOE_API_KEY", "from-the-air", 1);
    listen_begin();
    OPEN(&o, "--unix", path);
    assert_int_equal(o.code, CLI_OK);
    o.v->kind->take_prompt(o.v, "-p", "x", 1);
    o.v->kind->go_on(o.v, &out, &result);
    listen_end();
    unsetenv("DSMOE_API_KEY");
    fake_server_join(s);
    assert_int_equal(result.end, RUNNER_EOS);
    assert_has(fake_server_request(s, 1), "Authorization: Bearer from-the-air\r\n");
    assert_string_equal(o.v->name, path);
    stream_free(&out);
    voice_close(o.v);
    fake_server_free(s);
    unlink(path);
}

static void wrong_calls(void **state)
{
    (void)state;
    static char *const calls[][3] = {{"-m", "model", "--model"},
                                     {"-c", "64", "--ctx-size"},
                                     {"-b", "8", "--batch-size"},
                                     {"-t", "2", "--threads"},
                                     {"--kv-type", "f32", "--kv-type"},
                                     {"--no-repack", "--no-repack", "--no-repack"},
                                     {"--special", "--special", "--special"}};
    static char *const servers[][2] = {{"--url", "http://127.0.0.1:1"}, {"--unix", "/nonexistent"}};
    opened o;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int j = 0; j < 2; j++) {
            listen_begin();
            OPEN(&o, servers[j][0], servers[j][1], calls[i][0], calls[i][1]);
            listen_end();
            assert_int_equal(o.code, CLI_USAGE);
            assert_has(heard, calls[i][2]);
            assert_has(heard, servers[j][0]);
        }
    listen_begin();
    OPEN(&o, "-m", "model", "--api-key", "secret");
    listen_end();
    assert_int_equal(o.code, CLI_USAGE);
    assert_has(heard, "--api-key has no effect without --url");
    assert_lacks(heard, "secret");
    listen_begin();
    OPEN(&o, "--url", "http://127.0.0.1:1", "--api-key", "secret");
    voice_close(o.v);
    listen_end();
    assert_int_equal(o.code, CLI_FAILURE);
    assert_string_equal(heard,
                        "dsmoe test: http://127.0.0.1:1: cannot connect: Connection refused\n");
}

static void only_utf8_is_sent(void **state)
{
    (void)state;
    const fake_reply replies[] = {{.first = MODELS}};
    fake_server *s = fake_server_start(NULL, replies, 1);
    opened o;
    listen_begin();
    OPEN(&o, "--url", (char *)fake_server_url(s, "http"));
    int code = o.v->kind->take_prompt(o.v, "prompt.txt", "a\xff", 2);
    listen_end();
    assert_int_equal(code, CLI_FAILURE);
    assert_has(heard, "prompt.txt: not UTF-8");
    voice_close(o.v);
    fake_server_free(s);
}

int main(void)
{
    static const char *const proxies[] = {"http_proxy",  "https_proxy", "all_proxy",
                                          "HTTPS_PROXY", "ALL_PROXY",   "DSMOE_API_KEY"};
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++) unsetenv(proxies[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_given_is_sent),
        cmocka_unit_test(everything_that_was_given_is_sent),
        cmocka_unit_test(the_oldest_turns_make_room),
        cmocka_unit_test(ends_are_told_apart),
        cmocka_unit_test(another_seed_each_time),
        cmocka_unit_test(a_unix_socket_needs_no_url),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(only_utf8_is_sent),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

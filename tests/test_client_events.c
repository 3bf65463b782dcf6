/* test_client_events.c - answers of a server as bytes: events in pieces of any size, and bytes that are no
 * events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/client_events.h"

typedef struct seen {
    char text[256];
    size_t length;
    int n_left; /* pieces until the reader stops; -1: never */
} seen;

static bool show(void *context, const char *text, size_t length)
{
    seen *s = context;
    assert_true(length < sizeof s->text - s->length);
    memcpy(s->text + s->length, text, length);
    s->length += length;
    return s->n_left < 0 || --s->n_left > 0;
}

/* Puts bytes in pieces of `step`; the caller frees the events. */
static dsmoe_status put(client_events *e, seen *s, const char *bytes, size_t step,
                        dsmoe_error *error)
{
    *s = (seen){.n_left = -1};
    *e = (client_events){.show = show, .context = s};
    client_events_begin(e);
    dsmoe_status status = DSMOE_OK;
    for (size_t at = 0, n = strlen(bytes); at < n && status == DSMOE_OK; at += step)
        status = client_events_put(e, bytes + at, n - at < step ? n - at : step, error);
    return status;
}

#define CHAT(text)                                                                                 \
    "{\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"" text                               \
    "\"}, \"finish_reason\": null}]}"

static void an_answer_in_pieces_of_any_size(void **state)
{
    (void)state;
    static const char answer[] =
        ":\n\n"
        "event: message\nid: 7\ndata: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
        "data: " CHAT("Gr\\u00fc") "\n\n: ping\n\ndata:" CHAT(
            "\xc3\x9f e") "\r\n\r\n"
                          "data: {\"choices\":\ndata: [{\"delta\": {\"content\": \"!\"}}]}\r\r"
                          "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"length\"}], \"timings\": {\"prompt_ms\": 500, "
                          "\"predicted_ms\": 1500.0, \"cache_n\": 3}}\n\n"
                          "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 11, \"completion_tokens\": 4, "
                          "\"prompt_tokens_details\": {\"cached_tokens\": 3}}}\n\n"
                          "data: [DONE]\n\nnothing of this is looked at: data: {\n\n";
    for (size_t step = 1; step < sizeof answer; step++) {
        client_events e;
        seen s;
        dsmoe_error error;
        assert_int_equal(put(&e, &s, answer, step, &error), DSMOE_OK);
        assert_string_equal(s.text, "Gr\xc3\xbc\xc3\x9f e!");
        assert_true(e.is_done && !e.is_stopped);
        assert_int_equal(e.n_texts, 3);
        assert_int_equal(e.finish, CLIENT_FINISH_LENGTH);
        assert_int_equal(e.cost.n_prompt, 11);
        assert_int_equal(e.cost.n_cached, 3);
        assert_int_equal(e.cost.n_predicted, 4);
        assert_true(e.cost.prompt_seconds == 0.5 && e.cost.predicted_seconds == 1.5);
        client_events_free(&e);
    }
}

static void completions_have_their_text_elsewhere(void **state)
{
    (void)state;
    client_events e;
    seen s;
    dsmoe_error error;
    assert_int_equal(
        put(&e, &s,
            "\xef\xbb\xbf"
            "data: {\"choices\": [{\"text\": \"a\\u0000b\\\\u0000\", "
            "\"finish_reason\": \"stop\"}], \"error\": null, \"created\": 99999999999999999999}\n\n",
            1000, &error),
        DSMOE_OK);
    assert_string_equal(s.text, "a\xef\xbf\xbd"
                                "b\\u0000");
    assert_int_equal(e.finish, CLIENT_FINISH_STOP);
    assert_false(e.is_done);
    assert_true(e.cost.n_prompt == -1 && e.cost.n_predicted == -1 && e.cost.prompt_seconds == -1);
    client_events_free(&e);
}

static void enough_is_enough(void **state)
{
    (void)state;
    static const char answer[] =
        "data: " CHAT("a") "\n\ndata: " CHAT("b") "\n\ndata: " CHAT("c") "\n\n";
    dsmoe_error error;
    seen s = {.n_left = 2};
    client_events e = {.show = show, .context = &s};
    client_events_begin(&e);
    assert_int_equal(client_events_put(&e, answer, strlen(answer), &error), DSMOE_OK);
    assert_string_equal(s.text, "ab");
    assert_true(e.is_stopped);
    client_events_free(&e);
}

static void bad_events_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *words;
    } cases[] = {
        {"data: hello\n\n", "not JSON"},
        {"data: {\"choices\": [\n\n", "not JSON"},
        {"data: \"text\"\n\n", "no choices"},
        {"data: [1]\n\n", "no choices"},
        {"data: {}\n\n", "no choices"},
        {"data: {\"choices\": 5}\n\n", "no choices"},
        {"data: {\"choices\": [], \"choices\": []}\n\n", "not JSON"},
        {"data: {\"error\": {\"message\": \"the pass failed\"}}\n\n", "broke off: the pass failed"},
        {"data: {\"error\": \"in a word\"}\n\n", "broke off: in a word"},
        {"data: {\"error\": {}}\n\n", "does not say why"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client_events e;
        seen s;
        dsmoe_error error = {0};
        assert_int_not_equal(put(&e, &s, cases[i].bytes, 3, &error), DSMOE_OK);
        if (!strstr(error.message, cases[i].words))
            fail_msg("'%s' has no '%s'", error.message, cases[i].words);
        client_events_free(&e);
    }
}

/* Members of an unexpected type are treated as absent. */
static void odd_events_do_no_harm(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "data: {\"choices\": [5]}\n\n",
        "data: {\"choices\": [[]]}\n\n",
        "data: {\"choices\": [{\"delta\": \"text\"}]}\n\n",
        "data: {\"choices\": [{\"delta\": {\"content\": null}, \"finish_reason\": 5}]}\n\n",
        "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": \"5\", \"completion_tokens\": -1}}\n\n",
        "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9223372036854775807}}\n\n",
        "data: {\"choices\": [], \"timings\": {\"prompt_ms\": -1, \"predicted_ms\": []}}\n\n",
        "data\ndatabase: {\n\nretry: 5\n\n\n\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client_events e;
        seen s;
        dsmoe_error error;
        assert_int_equal(put(&e, &s, cases[i], 5, &error), DSMOE_OK);
        assert_int_equal(s.length, 0);
        assert_int_equal(e.finish, CLIENT_FINISH_NONE);
        assert_true(e.cost.n_prompt == -1 && e.cost.n_predicted == -1 &&
                    e.cost.prompt_seconds == -1);
        client_events_free(&e);
    }
}

/* Answers damaged on the way are refused or not, but nothing out of bounds is read. */
static void damaged_answers_do_no_harm(void **state)
{
    (void)state;
    static const char answer[] = "data: " CHAT(
        "a\\u0000\xc3\x9f") "\r\n\r\n: x\n\ndata: {\"choices\": [{\"text\": \"\\\\\", "
                            "\"finish_reason\": \"stop\"}], \"usage\": {\"prompt_tokens\": 5}, \"timings\": {\"prompt_ms\": 1.5}}\n\n"
                            "data: {\"error\": {\"message\": \"no\"}}\n\ndata: [DONE]\n\n";
    static const char bytes[] = "\"\\{}[]:,\r\n u0d\xff";
    uint32_t random = 1;
    int n_refused = 0;
    for (int i = 0; i < 20000; i++) {
        char damaged[sizeof answer];
        memcpy(damaged, answer, sizeof answer);
        for (int j = 0; j < 1 + i % 3; j++) {
            random = random * 1664525 + 1013904223;
            damaged[(random >> 8) % (sizeof answer - 1)] =
                bytes[(random >> 24) % (sizeof bytes - 1)];
        }
        client_events e;
        seen s;
        dsmoe_error error;
        n_refused += put(&e, &s, damaged, 1 + (size_t)i % 50, &error) != DSMOE_OK;
        client_events_free(&e);
    }
    assert_true(n_refused > 10000);
}

/* Puts `first` and then `more` again and again; must be refused before it takes much memory. */
static void refuse_endless(const char *first, const char *more, const char *words)
{
    enum { MORE = 1 << 16 };
    char *piece = malloc(MORE);
    seen s = {.n_left = -1};
    client_events e = {.show = show, .context = &s};
    dsmoe_error error;
    dsmoe_status status = client_events_put(&e, first, strlen(first), &error);
    size_t n = strlen(more), n_piece = MORE / n * n, total = 0;
    for (size_t i = 0; i < n_piece; i++) piece[i] = more[i % n];
    for (; status == DSMOE_OK && total < 4u * CLIENT_LONGEST_EVENT; total += n_piece)
        status = client_events_put(&e, piece, n_piece, &error);
    assert_int_equal(status, DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, words));
    assert_true(total <= 4u * CLIENT_LONGEST_EVENT);
    assert_true(e.line.length <= CLIENT_LONGEST_EVENT && e.data.length <= CLIENT_LONGEST_EVENT);
    client_events_free(&e);
    free(piece);
}

static void endless_lines_and_events_are_refused(void **state)
{
    (void)state;
    refuse_endless("data: ", "x", "a line of the answer has more than 16 MB");
    refuse_endless(":", "x", "a line of the answer has more than 16 MB");
    refuse_endless("", "data: abcdefgh\n", "an event of the answer has more than 16 MB");
}

static void refusals_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *body, *message;
        bool context;
    } cases[] = {
        {"{\"error\": {\"message\": \"no\", \"code\": 400}}", "no", false},
        {"{\"error\": \"no\"}", "no", false},
        {"{\"error\": {\"message\": \"120 tokens do not fit the context of 64 tokens\"}}",
         "120 tokens do not fit the context of 64 tokens", true},
        {"{\"error\": {\"message\": \"maximum Context Length is 5\"}}",
         "maximum Context Length is 5", true},
        {"{\"error\": {\"message\": \"too much\", \"code\": \"context_length_exceeded\"}}",
         "too much", true},
        {"{\"error\": {\"message\": \"too much\", \"type\": \"exceed_context_size_error\"}}",
         "too much", true},
        {"{\"error\": {\"message\": \"context is no field\"}}", "context is no field", false},
        {"{\"detail\": \"Not Found\"}", "", false},
        {"[{\"error\": {\"message\": \"no\"}}]", "", false},
        {"<html>", "", false},
        {"", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client_refusal r;
        client_read_refusal(cases[i].body, strlen(cases[i].body), &r);
        assert_string_equal(r.message, cases[i].message);
        assert_int_equal(r.is_about_context, cases[i].context);
    }
}

static void a_long_refusal_is_cut(void **state)
{
    (void)state;
    static char body[4096] = "{\"error\": {\"message\": \"";
    size_t n = strlen(body);
    memset(body + n, 'x', 4000);
    memcpy(body + n + 4000, "\"}}", 3);
    client_refusal r;
    client_read_refusal(body, n + 4003, &r);
    assert_int_equal(strlen(r.message), CLIENT_MESSAGE - 1);
}

static void models_are_read(void **state)
{
    (void)state;
    static const char *const none[] = {
        "", "{}", "[]", "{\"data\": []}", "{\"data\": [{\"id\": 5}]}", "{\"data\": {}}"};
    static const char two[] = "{\"data\": [{\"id\": \"one\"}, {\"id\": \"two\"}]}";
    char *name = client_read_model(two, strlen(two));
    assert_string_equal(name, "one");
    free(name);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(client_read_model(none[i], strlen(none[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_pieces_of_any_size),
        cmocka_unit_test(completions_have_their_text_elsewhere),
        cmocka_unit_test(enough_is_enough),
        cmocka_unit_test(bad_events_are_refused),
        cmocka_unit_test(odd_events_do_no_harm),
        cmocka_unit_test(damaged_answers_do_no_harm),
        cmocka_unit_test(endless_lines_and_events_are_refused),
        cmocka_unit_test(refusals_are_read),
        cmocka_unit_test(a_long_refusal_is_cut),
        cmocka_unit_test(models_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

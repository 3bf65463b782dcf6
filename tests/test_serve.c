/* test_serve.c - what the server answers: every endpoint, whole and as a stream, with a small quantised
 * model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve_fixture.h"

static server *served;

static int begin(void **state)
{
    make_served_model(state);
    server_options o = served_options();
    served = start_server(&o);
    return 0;
}

static int end(void **state)
{
    server_free(served);
    return remove_served_model(state);
}

/* ---- information about the server --------------------------------------------------------------- */

static void describes_itself(void **state)
{
    (void)state;
    json_node *health = ask(served, 200, "GET", "/health", NULL);
    assert_string_equal(string_at(health, "status"), "ok");
    json_node *models = ask(served, 200, "GET", "/v1/models", NULL);
    assert_string_equal(string_at(models, "data.0.id"), "model.gguf");
    assert_int_equal(integer_at(models, "data.0.meta.n_vocab"), 268);
    json_node *props = ask(served, 200, "GET", "/props", NULL);
    assert_int_equal(integer_at(props, "n_ctx"), 256);
    assert_int_equal(integer_at(props, "total_slots"), 4);
    assert_int_equal(integer_at(props, "moe.n_layers"), 2);
    assert_int_equal(integer_at(props, "moe.first_layer"), 1);
    assert_string_equal(string_at(props, "eos_token"), "<|end|>");
    assert_true(number_at(props, "default_generation_settings.top_p") == 0.95);
    json_node *slots = ask(served, 200, "GET", "/slots", NULL);
    assert_int_equal(json_node_count(slots), 4);
    json_node_free(health);
    json_node_free(models);
    json_node_free(props);
    json_node_free(slots);
}

static void loads_before_it_answers(void **state)
{
    (void)state;
    server *s;
    dsmoe_error error;
    server_options o = served_options();
    assert_int_equal(server_start(&o, &s, &error), DSMOE_OK);
    json_node_free(ask(s, 503, "GET", "/health", NULL));
    json_node *refused = ask(s, 503, "POST", "/v1/completions", "{\"prompt\": \"a\"}");
    assert_string_equal(string_at(refused, "error.type"), "unavailable_error");
    json_node_free(refused);
    server_free(s);
}

static void tokens_and_back(void **state)
{
    (void)state;
    json_node *tokens = ask(served, 200, "POST", "/tokenize",
                            "{\"content\": \"hé\", \"with_pieces\": true, \"add_special\": true}");
    size_t n = json_node_count(value_at(tokens, "tokens"));
    assert_int_equal(integer_at(tokens, "tokens.0.id"), 265);
    /* é becomes two tokens here, neither of which is text by itself */
    assert_int_equal(
        json_node_kind(value_at(json_node_item(value_at(tokens, "tokens"), n - 1), "piece")),
        JSON_KIND_ARRAY);
    json_node_free(tokens);
    tokens = ask(served, 200, "POST", "/tokenize", "{\"content\": \"<|end|>\"}");
    assert_int_equal(integer_at(tokens, "tokens.0"), 266);
    json_node_free(tokens);
    tokens = ask(served, 200, "POST", "/tokenize",
                 "{\"content\": \"<|end|>\", \"parse_special\": false}");
    assert_true(integer_at(tokens, "tokens.0") != 266);
    json_node_free(tokens);
    json_node *text = ask(served, 200, "POST", "/detokenize", "{\"tokens\": [266]}");
    assert_string_equal(string_at(text, "content"), "<|end|>");
    json_node_free(text);
    text = ask(served, 200, "POST", "/apply-template",
               "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, "
               "{\"role\": \"user\", \"content\": \"U\"}]}");
    assert_string_equal(string_at(text, "prompt"), "<|begin|>S\n\nUser: U\n\nAssistant:");
    json_node_free(text);
    json_node_free(ask(served, 400, "POST", "/tokenize", "{\"content\": 1}"));
    json_node *refused = ask(served, 400, "POST", "/detokenize", "{\"tokens\": [1, 267]}");
    assert_string_equal(string_at(refused, "error.message"), "tokens[1] is not a token id");
    json_node_free(refused);
    json_node_free(ask(served, 400, "POST", "/detokenize", "{\"tokens\": [-1]}"));
    json_node_free(ask(served, 400, "POST", "/detokenize", "[]"));
}

static void refuses_what_is_not_there(void **state)
{
    (void)state;
    const char *const paths[] = {"/etc/passwd",   "/../../etc/passwd", "/%2e%2e/etc/passwd",
                                 "//v1/models",   "/v1/models/",       "/v1/MODELS",
                                 "/v1/models%00", "/slots/0",          "/index.html/.."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        json_node *refused = ask(served, 404, "GET", paths[i], NULL);
        assert_string_equal(string_at(refused, "error.type"), "not_found_error");
        json_node_free(refused);
    }
    /* slots cannot be saved or restored, whatever the file's name */
    const char *const files[] = {"/slots/0?action=save", "/slots/0?action=restore",
                                 "/slots/..%2f0?action=erase"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        json_node_free(ask(served, 404, "POST", files[i], "{\"filename\": \"../../etc/passwd\"}"));
    json_node_free(ask(served, 405, "GET", "/v1/completions", NULL));
    json_node_free(ask(served, 405, "DELETE", "/v1/models", NULL));
    const char *const bodies[] = {"", "{:", "[]", "null", "{\"prompt\": 5}", "{\"prompt\": []}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        json_node *refused = ask(served, 400, "POST", "/v1/completions", bodies[i]);
        assert_string_equal(string_at(refused, "error.type"), "invalid_request_error");
        assert_int_equal(integer_at(refused, "error.code"), 400);
        json_node_free(refused);
    }
}

static void page_is_served_safely(void **state)
{
    (void)state;
    http_client client;
    assert_int_equal(client_fetch(&client, server_url(served), "GET", "/", "", NULL), 200);
    const char *policy = client_header(&client, "Content-Security-Policy");
    assert_non_null(policy);
    assert_non_null(strstr(policy, "default-src 'none'"));
    assert_non_null(strstr(policy, "frame-ancestors 'none'"));
    assert_null(client_header(&client, "Access-Control-Allow-Origin"));
    assert_non_null(client_header(&client, "X-Request-Id"));
    client_close(&client);
}

/* ---- whole answers ------------------------------------------------------------------------------ */

#define CHAT "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"seed\": 5"

static void answers_a_chat(void **state)
{
    (void)state;
    json_node *a = ask(served, 200, "POST", "/v1/chat/completions",
                       "{" CHAT ", \"max_tokens\": 12, \"ignore_eos\": true}");
    assert_string_equal(string_at(a, "object"), "chat.completion");
    assert_int_equal(strncmp(string_at(a, "id"), "chatcmpl-", 9), 0);
    assert_string_equal(string_at(a, "choices.0.message.role"), "assistant");
    assert_string_equal(string_at(a, "choices.0.finish_reason"), "length");
    assert_true(is_null_at(a, "choices.0.logprobs"));
    assert_int_equal(integer_at(a, "choices.0.index"), 0);
    int64_t n_prompt = integer_at(a, "usage.prompt_tokens");
    assert_int_equal(integer_at(a, "usage.completion_tokens"), 12);
    assert_int_equal(integer_at(a, "usage.total_tokens"), n_prompt + 12);
    assert_int_equal(integer_at(a, "timings.prompt_n") + integer_at(a, "timings.cache_n"),
                     n_prompt);
    assert_int_equal(integer_at(a, "timings.predicted_n"), 12);
    json_node_free(a);
}

/* The text of one completion, to be freed. */
static char *text_of(const char *body)
{
    json_node *a = ask(served, 200, "POST", "/v1/completions", body);
    char *text = strdup(string_at(a, "choices.0.text"));
    json_node_free(a);
    return text;
}

static void seeds_decide(void **state)
{
    (void)state;
    char *texts[3];
    const int seeds[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        char body[128];
        snprintf(body, sizeof body,
                 "{\"prompt\": \"once\", \"max_tokens\": 20, \"temperature\": 1, \"seed\": %d}",
                 seeds[i]);
        texts[i] = text_of(body);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[0], texts[2]);
    for (int i = 0; i < 3; i++) free(texts[i]);
}

static void several_choices_and_prompts(void **state)
{
    (void)state;
    json_node *a =
        ask(served, 200, "POST", "/v1/completions",
            "{\"prompt\": [\"one\", [1, 2, 3]], \"n\": 3, \"max_tokens\": 9, \"seed\": 4, "
            "\"ignore_eos\": true, \"temperature\": 1}");
    assert_int_equal(json_node_count(value_at(a, "choices")), 6);
    for (int i = 0; i < 6; i++) {
        char at[32];
        snprintf(at, sizeof at, "choices.%d.index", i);
        assert_int_equal(integer_at(a, at), i);
    }
    /* a prompt counts once, however many completions it has */
    assert_int_equal(integer_at(a, "usage.completion_tokens"), 54);
    assert_string_not_equal(string_at(a, "choices.0.text"), string_at(a, "choices.1.text"));
    char *alone =
        text_of("{\"prompt\": \"one\", \"max_tokens\": 9, \"seed\": 6, \"ignore_eos\": true, "
                "\"temperature\": 1}");
    assert_string_equal(alone, string_at(a, "choices.2.text")); /* seed 4 plus the index */
    free(alone);
    json_node_free(a);
}

static void stops_before_a_stop_text(void **state)
{
    (void)state;
#define STOPPED "{\"prompt\": \"a\", \"max_tokens\": 40, \"temperature\": 0, \"ignore_eos\": true"
    char *whole = text_of(STOPPED "}");
    /* a letter from its middle, as other characters may stand for invalid bytes */
    const char *letter = whole + strlen(whole) / 3;
    while (*letter && !(*letter > ' ' && *letter < 127 && !strchr("\"\\", *letter))) letter++;
    assert_true(*letter);
    char stop[2] = {*letter}, body[320];
    snprintf(body, sizeof body, STOPPED ", \"stop\": [\"never there\", \"%s\"]}", stop);
    json_node *a = ask(served, 200, "POST", "/v1/completions", body);
    const char *text = string_at(a, "choices.0.text");
    size_t first = (size_t)(strstr(whole, stop) - whole);
    assert_string_equal(string_at(a, "choices.0.finish_reason"), "stop");
    assert_int_equal(strlen(text), first);
    assert_int_equal(strncmp(whole, text, first), 0);
    json_node_free(a);
    json_node *native = ask(served, 200, "POST", "/completion", body);
    assert_string_equal(string_at(native, "stop_type"), "word");
    assert_string_equal(string_at(native, "stopping_word"), stop);
    json_node_free(native);
    free(whole);
}

static void logprobs_tell_the_text(void **state)
{
    (void)state;
    json_node *a = ask(served, 200, "POST", "/v1/chat/completions",
                       "{" CHAT ", \"max_tokens\": 16, \"temperature\": 0, \"logprobs\": true, "
                       "\"top_logprobs\": 3}");
    const json_node *content = value_at(a, "choices.0.logprobs.content");
    size_t n = json_node_count(content);
    unsigned char bytes[512];
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const json_node *token = json_node_item(content, i);
        assert_true(number_at(token, "logprob") <= 0);
        assert_int_equal(json_node_count(value_at(token, "top_logprobs")), 3);
        /* at temperature 0 the most likely token is chosen */
        assert_int_equal(integer_at(token, "id"), integer_at(token, "top_logprobs.0.id"));
        const json_node *piece = value_at(token, "bytes");
        for (size_t b = 0; b < json_node_count(piece); b++)
            bytes[length++] = (unsigned char)json_node_integer(json_node_item(piece, b));
    }
    /* the bytes together are the content */
    const char *text = string_at(a, "choices.0.message.content");
    if (!strstr(text, "\xef\xbf\xbd")) {
        assert_int_equal(strlen(text), length);
        assert_memory_equal(text, bytes, length);
    }
    json_node_free(a);
    a = ask(served, 200, "POST", "/v1/completions",
            "{\"prompt\": \"a\", \"max_tokens\": 4, \"logprobs\": 2, \"ignore_eos\": true}");
    assert_int_equal(json_node_count(value_at(a, "choices.0.logprobs.token_logprobs")), 4);
    assert_int_equal(json_node_count(value_at(a, "choices.0.logprobs.text_offset")), 4);
    json_node_free(a);
    /* a token with two bytes is one character of the text */
    a = ask(served, 200, "POST", "/v1/completions",
            "{\"prompt\": \"a\", \"max_tokens\": 3, \"logprobs\": 0, \"temperature\": 0, "
            "\"logit_bias\": {\"264\": 100}}");
    assert_string_equal(string_at(a, "choices.0.text"), "üüü");
    assert_int_equal(integer_at(a, "choices.0.logprobs.text_offset.2"), 2);
    json_node_free(a);
}

/* A whole answer is kept in memory until its end, so a single request must not make it too large. */
static void logprobs_are_limited(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* so many tokens take too long */
#endif
    json_node *refused =
        ask(served, 400, "POST", "/v1/chat/completions",
            "{" CHAT ", \"n\": 64, \"max_tokens\": 200, \"ignore_eos\": true, \"logprobs\": true, "
            "\"top_logprobs\": 20}");
    assert_non_null(strstr(string_at(refused, "error.message"), "or for a stream"));
    json_node_free(refused);
    wait_until_idle(served, 2);
}

static void evaluates_a_prompt_only(void **state)
{
    (void)state;
    json_node *a =
        ask(served, 200, "POST", "/completion", "{\"prompt\": [1, \"and\", 2], \"n_predict\": 0}");
    assert_string_equal(string_at(a, "content"), "");
    assert_int_equal(integer_at(a, "tokens_predicted"), 0);
    assert_string_equal(string_at(a, "stop_type"), "limit");
    json_node_free(a);
}

static void native_answers(void **state)
{
    (void)state;
    json_node *a =
        ask(served, 200, "POST", "/completion",
            "{\"prompt\": \"a\", \"n_predict\": 6, \"return_tokens\": true, \"n_probs\": 2, "
            "\"ignore_eos\": true}");
    assert_int_equal(json_node_count(value_at(a, "tokens")), 6);
    assert_int_equal(json_node_count(value_at(a, "completion_probabilities")), 6);
    assert_int_equal(json_node_count(value_at(a, "completion_probabilities.0.top_logprobs")), 2);
    assert_true(json_node_bool(value_at(a, "stop")));
    json_node_free(a);
    a = ask(served, 200, "POST", "/completion", "{\"prompt\": [\"a\", \"b\"], \"n_predict\": 2}");
    json_node_free(a);
}

static void context_is_a_limit(void **state)
{
    (void)state;
    char body[4096] = "{\"max_tokens\": 500, \"ignore_eos\": true, \"prompt\": [1";
    for (int i = 1; i < 250; i++) strcat(body, ",2");
    strcat(body, "]}");
    json_node *a = ask(served, 200, "POST", "/v1/completions", body);
    assert_int_equal(integer_at(a, "usage.completion_tokens"), 6);
    assert_string_equal(string_at(a, "choices.0.finish_reason"), "length");
    json_node_free(a);
    for (int stream = 0; stream < 2; stream++) {
        strcpy(body, stream ? "{\"stream\": true, \"prompt\": [1" : "{\"prompt\": [1");
        for (int i = 1; i < 300; i++) strcat(body, ",2");
        strcat(body, "]}");
        a = ask(served, 400, "POST", "/v1/completions", body);
        assert_non_null(strstr(string_at(a, "error.message"), "300"));
        assert_non_null(strstr(string_at(a, "error.message"), "256"));
        json_node_free(a);
    }
}

/* Decodes base64 without checks. */
static void unpack(const char *letters, unsigned char *bytes)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; *letters; letters += 4, bytes += 3) {
        unsigned four = 0;
        for (int i = 0; i < 4; i++) {
            const char *found = letters[i] == '=' ? NULL : strchr(alphabet, letters[i]);
            four = four << 6 | (found ? (unsigned)(found - alphabet) : 0);
        }
        for (int i = 0; i < 3; i++) bytes[i] = (unsigned char)(four >> (16 - 8 * i));
    }
}

static void embeds(void **state)
{
    (void)state;
    json_node *both = ask(served, 200, "POST", "/v1/embeddings",
                          "{\"input\": [\"the cat\", \"a much longer text than that\"]}");
    json_node *one = ask(served, 200, "POST", "/v1/embeddings", "{\"input\": \"the cat\"}");
    double length = 0;
    assert_int_equal(json_node_count(value_at(one, "data.0.embedding")), 64);
    for (int i = 0; i < 64; i++) {
        char at[48];
        snprintf(at, sizeof at, "data.0.embedding.%d", i);
        double x = number_at(one, at);
        length += x * x;
        assert_true(x == number_at(both, at)); /* the same bits alone and together */
    }
    assert_true(fabs(length - 1) < 1e-5);
    assert_int_equal(integer_at(one, "usage.prompt_tokens"), integer_at(one, "usage.total_tokens"));
    json_node *packed = ask(served, 200, "POST", "/v1/embeddings",
                            "{\"input\": \"the cat\", \"encoding_format\": \"base64\"}");
    const char *letters = string_at(packed, "data.0.embedding");
    assert_int_equal(strlen(letters), (64 * 4 + 2) / 3 * 4);
    float packed_values[66];
    unpack(letters, (unsigned char *)packed_values);
    for (int i = 0; i < 64; i++) { /* both formats give the same numbers */
        char at[48];
        snprintf(at, sizeof at, "data.0.embedding.%d", i);
        assert_true((float)number_at(one, at) == packed_values[i]);
    }
    json_node_free(both);
    json_node_free(one);
    json_node_free(packed);
}

/* ---- cached prefixes ------------------------------------------------------------------------------ */

static void cache_changes_nothing(void **state)
{
    (void)state;
    char body[2048];
    char *texts[3];
    int64_t cached[3];
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body,
                 "{\"max_tokens\": 24, \"temperature\": 1, \"seed\": 3, \"ignore_eos\": true, "
                 "\"cache_prompt\": %s, \"prompt\": [9",
                 i == 2 ? "false" : "true");
        for (int k = 1; k < 150; k++) snprintf(body + strlen(body), 16, ",%d", 1 + k * 37 % 200);
        strcat(body, "]}");
        json_node *a = ask(served, 200, "POST", "/v1/completions", body);
        texts[i] = strdup(string_at(a, "choices.0.text"));
        cached[i] = integer_at(a, "usage.prompt_tokens_details.cached_tokens");
        assert_int_equal(integer_at(a, "timings.prompt_n") + integer_at(a, "timings.cache_n"), 150);
        json_node_free(a);
    }
    assert_int_equal(cached[0], 0);
    assert_int_equal(cached[1], 128); /* two full pages */
    assert_int_equal(cached[2], 0);
    assert_string_equal(texts[0], texts[1]);
    assert_string_equal(texts[0], texts[2]);
    for (int i = 0; i < 3; i++) free(texts[i]);
}

/* ---- streams ------------------------------------------------------------------------------------ */

static void open_stream(http_client *client, const char *path_asked, const char *body)
{
    assert_true(client_open(client, server_url(served)));
    assert_true(client_ask(client, "POST", path_asked, "", body));
    if (!client_read_head(client)) fail_msg("%s", client->problem);
    assert_int_equal(client->status, 200);
    assert_non_null(strstr(client_header(client, "Content-Type"), "text/event-stream"));
}

static void chat_streams(void **state)
{
    (void)state;
    json_node *whole = ask(served, 200, "POST", "/v1/chat/completions",
                           "{" CHAT ", \"max_tokens\": 20, \"ignore_eos\": true}");
    http_client client;
    open_stream(&client, "/v1/chat/completions",
                "{" CHAT ", \"max_tokens\": 20, \"ignore_eos\": true, \"stream\": true, "
                "\"stream_options\": {\"include_usage\": true}}");
    char text[2048] = "", id[64] = "";
    int n = 0, n_ends = 0, n_usages = 0;
    const char *event;
    while ((event = client_event(&client)) && strcmp(event, "[DONE]")) {
        json_node *chunk = parse_json(event);
        if (n == 0) {
            snprintf(id, sizeof id, "%s", string_at(chunk, "id"));
            assert_string_equal(string_at(chunk, "choices.0.delta.role"), "assistant");
            assert_string_equal(string_at(chunk, "choices.0.delta.content"), "");
        }
        assert_string_equal(string_at(chunk, "id"), id);
        assert_string_equal(string_at(chunk, "object"), "chat.completion.chunk");
        if (json_node_count(value_at(chunk, "choices")) == 0) {
            n_usages++;
            assert_int_equal(integer_at(chunk, "usage.completion_tokens"), 20);
        } else if (is_null_at(chunk, "choices.0.finish_reason")) {
            strcat(text, string_at(chunk, "choices.0.delta.content"));
        } else {
            n_ends++;
            assert_int_equal(json_node_count(value_at(chunk, "choices.0.delta")), 0);
            assert_string_equal(string_at(chunk, "choices.0.finish_reason"), "length");
            assert_int_equal(integer_at(chunk, "timings.predicted_n"), 20);
        }
        json_node_free(chunk);
        n++;
    }
    assert_non_null(event);
    assert_int_equal(n_ends, 1);
    assert_int_equal(n_usages, 1);
    assert_string_equal(text, string_at(whole, "choices.0.message.content"));
    client_close(&client);
    json_node_free(whole);
}

/* The text and the number of tokens of a stream. */
static void join_stream(const char *body, char *text, size_t *n_tokens)
{
    http_client client;
    open_stream(&client, "/v1/completions", body);
    const char *event;
    *text = '\0';
    *n_tokens = 0;
    while ((event = client_event(&client)) && strcmp(event, "[DONE]")) {
        json_node *chunk = parse_json(event);
        strcat(text, string_at(chunk, "choices.0.text"));
        if (has_value(chunk, "choices.0.logprobs.tokens"))
            *n_tokens += json_node_count(value_at(chunk, "choices.0.logprobs.tokens"));
        json_node_free(chunk);
    }
    assert_non_null(event);
    client_close(&client);
}

/* Incomplete characters, two-byte characters in one token, and stop strings that begin but do not
 * continue, in any order: whatever is held back, the stream finally gives the same as a whole answer. */
static void streams_hold_back_what_is_not_sure(void **state)
{
    (void)state;
    json_node *halves = ask(served, 200, "POST", "/tokenize", "{\"content\": \"éh!\"}");
    char biases[128], body[640], text[1024];
    snprintf(biases, sizeof biases, "{\"264\": 60");
    assert_int_equal(json_node_count(value_at(halves, "tokens")), 4);
    for (int i = 0; i < 4; i++)
        snprintf(biases + strlen(biases), 32, ", \"%d\": 60",
                 (int)json_node_integer(json_node_item(value_at(halves, "tokens"), (size_t)i)));
    json_node_free(halves);
    static const char *const stops[] = {"[]", "[\"hh!\", \"éü\"]", "[\"üüh\", \"!!\", \"é\"]",
                                        "\"hü\""};
    int n_stopped = 0;
    for (int i = 0; i < 40; i++) {
        snprintf(body, sizeof body,
                 "{\"prompt\": \"a\", \"max_tokens\": 30, \"seed\": %d, \"temperature\": 9, "
                 "\"logprobs\": 0, \"logit_bias\": %s}, \"stop\": %s",
                 i, biases, stops[i % 4]);
        size_t length = strlen(body), n_tokens;
        strcpy(body + length, "}");
        json_node *whole = ask(served, 200, "POST", "/v1/completions", body);
        strcpy(body + length, ", \"stream\": true}");
        join_stream(body, text, &n_tokens);
        assert_string_equal(text, string_at(whole, "choices.0.text"));
        bool has_tokens = has_value(whole, "choices.0.logprobs.tokens");
        assert_int_equal(n_tokens,
                         has_tokens ? json_node_count(value_at(whole, "choices.0.logprobs.tokens"))
                                    : 0);
        n_stopped += !strcmp(string_at(whole, "choices.0.finish_reason"), "stop");
        json_node_free(whole);
    }
    assert_true(n_stopped > 5 && n_stopped < 35);
}

static void native_streams(void **state)
{
    (void)state;
    http_client client;
    open_stream(&client, "/completion",
                "{\"prompt\": \"a\", \"n_predict\": 8, \"stream\": true, \"ignore_eos\": true}");
    const char *event;
    bool stopped = false;
    while ((event = client_event(&client))) {
        assert_false(stopped); /* this form has no [DONE] */
        json_node *chunk = parse_json(event);
        stopped = json_node_bool(value_at(chunk, "stop"));
        if (stopped) assert_string_equal(string_at(chunk, "stop_type"), "limit");
        json_node_free(chunk);
    }
    assert_true(stopped);
    client_close(&client);
}

/* Every token that the model reads is reported once, in order, with its experts. */
static void routing_streams(void **state)
{
    (void)state;
    http_client client;
    open_stream(&client, "/v1/completions",
                "{\"prompt\": [1, 2, 3, 4, 5], \"max_tokens\": 10, \"ignore_eos\": true, "
                "\"stream\": true, \"routing\": true, \"cache_prompt\": false}");
    int64_t position = 0;
    const char *event;
    while ((event = client_event(&client)) && strcmp(event, "[DONE]")) {
        json_node *chunk = parse_json(event);
        size_t n = has_value(chunk, "routing") ? json_node_count(value_at(chunk, "routing")) : 0;
        for (size_t i = 0; i < n; i++, position++) {
            const json_node *token = json_node_item(value_at(chunk, "routing"), i);
            assert_int_equal(integer_at(token, "position"), position);
            if (position < 5) assert_int_equal(integer_at(token, "id"), position + 1);
            size_t n_layers = position < 14 ? 2 : 0; /* the last token was not read */
            assert_int_equal(json_node_count(value_at(token, "experts")), n_layers);
            assert_int_equal(json_node_count(value_at(token, "weights")), n_layers);
            if (n_layers == 0) continue;
            assert_int_equal(json_node_count(value_at(token, "experts.1")), 2);
            assert_true(integer_at(token, "experts.1.0") < 8);
            assert_true(number_at(token, "weights.1.0") >= number_at(token, "weights.1.1"));
        }
        json_node_free(chunk);
    }
    assert_int_equal(position, 15);
    client_close(&client);
    json_node *whole =
        ask(served, 200, "POST", "/v1/completions",
            "{\"prompt\": [1, 2, 3, 4, 5], \"max_tokens\": 10, \"ignore_eos\": true, "
            "\"routing\": true, \"cache_prompt\": false}");
    assert_int_equal(json_node_count(value_at(whole, "routing")), 15);
    assert_int_equal(integer_at(whole, "routing.14.position"), 14);
    assert_int_equal(json_node_count(value_at(whole, "routing.13.experts")), 2);
    json_node_free(whole);
}

static void crowd_is_watched(void **state)
{
    (void)state;
    http_client client;
    assert_true(client_open(&client, server_url(served)));
    assert_true(client_ask(&client, "GET", "/routing", "", NULL));
    assert_true(client_read_head(&client));
    json_node_free(ask(served, 200, "POST", "/v1/completions",
                       "{\"prompt\": \"a\", \"max_tokens\": 40, \"ignore_eos\": true}"));
    json_node *event = parse_json(client_event(&client));
    assert_true(integer_at(event, "passes") > 0);
    assert_int_equal(json_node_count(value_at(event, "distinct")), 2);
    assert_int_equal(json_node_count(value_at(event, "load.1")), 8);
    assert_true(number_at(event, "distinct.0") >= 2);
    json_node_free(event);
    client_close(&client);
}

static void counters_equal_the_answers(void **state)
{
    (void)state;
    double before = metric(served, "dsmoe_predicted_tokens_total");
    double prompt = metric(served, "dsmoe_prompt_tokens_total");
    json_node *a = ask(served, 200, "POST", "/v1/completions",
                       "{\"prompt\": \"count these\", \"max_tokens\": 7, \"ignore_eos\": true, "
                       "\"cache_prompt\": false}");
    assert_true(metric(served, "dsmoe_predicted_tokens_total") - before == 7);
    assert_true(metric(served, "dsmoe_prompt_tokens_total") - prompt ==
                (double)integer_at(a, "timings.prompt_n"));
    json_node_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes_itself),
        cmocka_unit_test(loads_before_it_answers),
        cmocka_unit_test(tokens_and_back),
        cmocka_unit_test(refuses_what_is_not_there),
        cmocka_unit_test(page_is_served_safely),
        cmocka_unit_test(answers_a_chat),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(several_choices_and_prompts),
        cmocka_unit_test(stops_before_a_stop_text),
        cmocka_unit_test(logprobs_tell_the_text),
        cmocka_unit_test(logprobs_are_limited),
        cmocka_unit_test(evaluates_a_prompt_only),
        cmocka_unit_test(native_answers),
        cmocka_unit_test(context_is_a_limit),
        cmocka_unit_test(embeds),
        cmocka_unit_test(cache_changes_nothing),
        cmocka_unit_test(chat_streams),
        cmocka_unit_test(streams_hold_back_what_is_not_sure),
        cmocka_unit_test(native_streams),
        cmocka_unit_test(routing_streams),
        cmocka_unit_test(crowd_is_watched),
        cmocka_unit_test(counters_equal_the_answers),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

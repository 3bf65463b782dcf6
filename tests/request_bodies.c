/* request_bodies.c - request bodies for a small tokenizer. */
#include "request_bodies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dsmoe_tokenizer *tokenizer;
request_limits limits;
request r;
request_error e;

int open_limits(void **state)
{
    (void)state;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(TEST_DATA "/text_cli", &tokenizer, &error) != DSMOE_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    const dsmoe_chat_form *form;
    if (dsmoe_chat_form_find(tokenizer, NULL, &form, &error) != DSMOE_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    limits = (request_limits){.tokenizer = tokenizer,
                              .chat_form = form,
                              .vocab_size = VOCABULARY,
                              .n_ctx = CONTEXT,
                              .model = "tiny",
                              .sampling = dsmoe_sampler_options_default()};
    return 0;
}

int close_limits(void **state)
{
    (void)state;
    dsmoe_tokenizer_free(tokenizer);
    return 0;
}

char *body_of(request_kind kind, const char *text)
{
    static const char *const good[] = {
        [REQUEST_CHAT] = "'messages':[{'role':'user','content':'Hi'}]",
        [REQUEST_COMPLETION] = "'prompt':'Hi'",
        [REQUEST_NATIVE] = "'prompt':'Hi'",
        [REQUEST_EMBEDDING] = "'input':'Hi'",
    };
    char *body;
    int length =
        *text == '\'' ? asprintf(&body, "{%s,%s}", good[kind], text) : asprintf(&body, "%s", text);
    assert_true(length >= 0);
    for (char *c = body; *c; c++)
        if (*c == '\'') *c = '"';
    return body;
}

bool take(request_kind kind, const char *text)
{
    char *body = body_of(kind, text);
    bool good = request_read(&r, kind, &limits, body, strlen(body), &e);
    free(body);
    return good;
}

void must_take(request_kind kind, const char *text)
{
    if (!take(kind, text)) fail_msg("%s: %s", text, e.message);
}

void must_refuse(request_kind kind, const char *text, int status, const char *param,
                 const char *words)
{
    if (take(kind, text)) fail_msg("%.300s is taken", text);
    if (e.status != status || strcmp(e.param, param) || !strstr(e.message, words))
        fail_msg("%.300s: %d, \"%s\": %s", text, e.status, e.param, e.message);
    assert_string_equal(e.type, request_error_type(status));
    if (*param) assert_non_null(strstr(e.message, strncmp(param, "prompt", 6) ? param : "prompt"));
    request_free(&r);
}

void refuse_all(const refusal *cases, size_t count, int status)
{
    for (size_t i = 0; i < count; i++)
        must_refuse(cases[i].kind, cases[i].text, status, cases[i].param, cases[i].words);
}

char *repeated(const char *before, const char *text, size_t times, const char *after)
{
    size_t length = strlen(text);
    char *all = malloc(strlen(before) + times * length + strlen(after) + 1);
    assert_non_null(all);
    char *at = stpcpy(all, before);
    for (size_t i = 0; i < times; i++) at = stpcpy(at, text);
    strcpy(at, after);
    return all;
}

void must_refuse_many(request_kind kind, const char *before, const char *text, size_t times,
                      const char *after, const char *param, const char *words)
{
    char *all = repeated(before, text, times, after);
    must_refuse(kind, all, 400, param, words);
    free(all);
}

/* test_request_prompts.c - prompts and conversations of requests become ids that the model has and that
 * fit the context. */
#include "request_bodies.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static void check_prompt(size_t index, const int32_t *ids, size_t n_ids)
{
    assert_true(index < r.n_prompts);
    assert_int_equal(r.prompts[index].n_ids, n_ids);
    assert_memory_equal(r.prompts[index].ids, ids, n_ids * sizeof *ids);
}

static void check_text_prompt(size_t index, const char *text, int flags)
{
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(
        dsmoe_tokenizer_encode(tokenizer, text, strlen(text), flags, &ids, &n_ids, NULL), DSMOE_OK);
    check_prompt(index, ids, n_ids);
    free(ids);
}

/* ---- prompts ---------------------------------------------------------------------------------- */

static void test_forms_of_a_prompt(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int32_t first[3], last[3];
    } cases[] = {
        {"{'prompt':[1,2,266]}", 1, {1, 2, 266}, {1, 2, 266}},
        {"{'prompt':[[1,2,3.0]]}", 1, {1, 2, 3}, {1, 2, 3}},
        {"{'prompt':[[1,2,3],[4,5,6]]}", 2, {1, 2, 3}, {4, 5, 6}},
        {"{'prompt':['ab',[4,5,6]]}", 2, {BOS, 'a', 'b'}, {4, 5, 6}},
        {"{'prompt':'ab'}", 1, {BOS, 'a', 'b'}, {BOS, 'a', 'b'}},
        {"{'prompt':['ab']}", 1, {BOS, 'a', 'b'}, {BOS, 'a', 'b'}},
        {"{'prompt':['ab','ba']}", 2, {BOS, 'a', 'b'}, {BOS, 'b', 'a'}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int kind = REQUEST_COMPLETION; kind <= REQUEST_NATIVE; kind++) {
            must_take(kind, cases[i].text);
            assert_int_equal(r.n_prompts, cases[i].n);
            check_prompt(0, cases[i].first, 3);
            check_prompt(cases[i].n - 1, cases[i].last, 3);
            request_free(&r);
        }
    must_take(REQUEST_EMBEDDING, "{'input':[[1,2],[3]],'encoding_format':'base64'}");
    assert_true(r.n_prompts == 2 && r.base64);
    request_free(&r);
    must_take(REQUEST_EMBEDDING, "{'input':['ab','c'],'encoding_format':'float'}");
    assert_true(r.n_prompts == 2 && !r.base64);
    check_text_prompt(0, "ab", DSMOE_ENCODE_BOS);
    request_free(&r);
}

static void test_native_prompts_mix_text_and_ids(void **state)
{
    (void)state;
    const int32_t text_first[] = {BOS, 'a', 7, 'b', EOS}, id_first[] = {7, 'a', 'b'};
    const int32_t only_bos[] = {BOS, 9};
    must_take(REQUEST_NATIVE, "{'prompt':['a',7,'b<|end|>']}");
    check_prompt(0, text_first, COUNT(text_first));
    request_free(&r);
    must_take(REQUEST_NATIVE, "{'prompt':[[7,'a','','b'],'c']}");
    assert_int_equal(r.n_prompts, 2);
    check_prompt(0, id_first, COUNT(id_first));
    request_free(&r);
    must_take(REQUEST_NATIVE, "{'prompt':['',9]}");
    check_prompt(0, only_bos, COUNT(only_bos));
    request_free(&r);
    must_refuse(REQUEST_COMPLETION, "{'prompt':[7,'a']}", 400, "prompt[1]", "the id of a token");
}

static void test_special_tokens_in_a_text(void **state)
{
    (void)state;
    const char *text = "{'prompt':'a<|end|>'}";
    const int32_t parsed[] = {BOS, 'a', EOS};
    must_take(REQUEST_NATIVE, text);
    check_prompt(0, parsed, COUNT(parsed));
    request_free(&r);
    must_take(REQUEST_COMPLETION, text);
    check_text_prompt(0, "a<|end|>", DSMOE_ENCODE_BOS);
    for (size_t i = 0; i < r.prompts[0].n_ids; i++) assert_true(r.prompts[0].ids[i] != EOS);
    request_free(&r);
}

static void test_prompts_that_are_none(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_COMPLETION, "{'prompt':[]}", "prompt", "at least one token"},
        {REQUEST_COMPLETION, "{'prompt':[[]]}", "prompt[0]", "at least one token"},
        {REQUEST_COMPLETION, "{'prompt':7}", "prompt", "is 7; it must be a string"},
        {REQUEST_COMPLETION, "{'prompt':{}}", "prompt", "an object"},
        {REQUEST_NATIVE, "{'prompt':true}", "prompt", "true"},
        {REQUEST_COMPLETION, "{'prompt':[null]}", "prompt[0]", "null"},
        {REQUEST_COMPLETION, "{'prompt':['a',{}]}", "prompt[1]", "an object"},
        {REQUEST_COMPLETION, "{'prompt':[-1]}", "prompt[0]", "is -1"},
        {REQUEST_COMPLETION, "{'prompt':[1,267]}", "prompt[1]", "from 0 to 266"},
        {REQUEST_COMPLETION, "{'prompt':[1,9223372036854775808]}", "prompt[1]", "9.22"},
        {REQUEST_COMPLETION, "{'prompt':[1,1.5]}", "prompt[1]", "1.5"},
        {REQUEST_COMPLETION, "{'prompt':[1,null]}", "prompt[1]", "null"},
        {REQUEST_NATIVE, "{'prompt':[1,[2]]}", "prompt[1]", "an array of 1"},
        {REQUEST_NATIVE, "{'prompt':[[1],[2,true]]}", "prompt[1][1]", "true"},
        {REQUEST_EMBEDDING, "{'input':[]}", "input", "at least one token"},
        {REQUEST_EMBEDDING, "{'input':[300]}", "input[0]", "300"},
    };
    refuse_all(cases, COUNT(cases), 400);
}

/* ---- the context ------------------------------------------------------------------------------ */

/* A prompt of `count` ids, in a form that each kind except chat accepts. */
static char *ids_of(request_kind kind, size_t count, const char *more)
{
    const char *before = kind == REQUEST_EMBEDDING ? "{'input':[1" : "{'prompt':[1";
    return repeated(before, ",1", count - 1, more);
}

static void test_prompts_and_the_context(void **state)
{
    (void)state;
    static const struct {
        request_kind kind;
        size_t count;
        const char *more, *words;
    } cases[] = {
        {REQUEST_COMPLETION, 63, "]}", NULL},
        {REQUEST_COMPLETION, 64, "]}", "has 64 tokens, which leaves no room"},
        {REQUEST_COMPLETION, 64, "],'max_tokens':0}", NULL},
        {REQUEST_COMPLETION, 65, "],'max_tokens':0}",
         "the prompt has 65 tokens, more than the context of 64 holds"},
        {REQUEST_COMPLETION, 5000, "]}",
         "the prompt has 5000 tokens, more than the context of 64 holds"},
        {REQUEST_NATIVE, 63, "]}", NULL},
        {REQUEST_NATIVE, 65, "]}", "the prompt has 65 tokens"},
        {REQUEST_NATIVE, 5000, "]}",
         "the prompt has 5000 tokens, more than the context of 64 holds"},
        {REQUEST_NATIVE, 100, ",'a']}", "65 tokens and 36 more items"},
        {REQUEST_EMBEDDING, 64, "]}", NULL},
        {REQUEST_EMBEDDING, 65, "]}", "the prompt has 65 tokens"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text = ids_of(cases[i].kind, cases[i].count, cases[i].more);
        if (cases[i].words) {
            const char *param = cases[i].kind == REQUEST_EMBEDDING ? "input" : "prompt";
            assert_false(take(cases[i].kind, text));
            assert_true(e.status == 400 && !strcmp(e.param, param));
            if (!strstr(e.message, cases[i].words)) fail_msg("%s", e.message);
        } else {
            must_take(cases[i].kind, text);
            assert_int_equal(r.prompts[0].n_ids, cases[i].count);
        }
        request_free(&r);
        free(text);
    }
}

static void test_texts_and_the_context(void **state)
{
    (void)state;
    static const char chat[] = "{'messages':[{'role':'user','content':'";
    must_refuse_many(REQUEST_COMPLETION, "{'prompt':'", "a b ", 100, "'}", "prompt",
                     "context of 64");
    char *talk = repeated(chat, "a b ", 100, "'}]}");
    assert_false(take(REQUEST_CHAT, talk));
    assert_int_equal(e.status, 400);
    assert_string_equal(e.param, "messages");
    assert_non_null(strstr(e.message, "more than the context of 64 holds"));
    request_free(&r);
    free(talk);
    /* A prompt that cannot fit is not even encoded. */
    size_t most = (1 << 20) + 65 * 64;
    must_refuse_many(REQUEST_NATIVE, "{'prompt':'", "a", most, "'}", "prompt",
                     "a text of 1052736 bytes");
    must_refuse_many(REQUEST_NATIVE, "{'prompt':[1,'", "a", most, "']}", "prompt[1]", "a text of");
    must_refuse_many(REQUEST_CHAT, chat, "a", most, "'}]}", "messages", "a text of");
}

/* ---- conversations ---------------------------------------------------------------------------- */

static void check_chat(const char *text, const dsmoe_message *messages, size_t count)
{
    int32_t *ids;
    size_t n_ids;
    must_take(REQUEST_CHAT, text);
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(
        dsmoe_chat_encode(tokenizer, limits.chat_form, messages, count, true, &ids, &n_ids, NULL),
        DSMOE_OK);
    check_prompt(0, ids, n_ids);
    free(ids);
    request_free(&r);
}

static void test_conversations(void **state)
{
    (void)state;
    limits.n_ctx = 200;
    const dsmoe_message talk[] = {
        {"system", "Be."}, {"user", "a\"b"}, {"assistant", "c"}, {"user", "döner"}};
    const dsmoe_message silent[] = {{"user", ""}, {"assistant", ""}};
    check_chat(
        "{'messages':[{'role':'system','content':'Be.'},"
        "{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'\\\"b'}]},"
        "{'role':'assistant','content':'c','tool_calls':[]},"
        "{'role':'user','content':'döner','name':'x'}]}",
        talk, COUNT(talk));
    check_chat("{'messages':[{'role':'developer','content':'Be.'}]}", talk, 1);
    check_chat("{'messages':[{'role':'user','content':[]},{'role':'assistant','content':null}]}",
               silent, COUNT(silent));
    check_chat("{'messages':[{'role':'user','content':''},{'role':'assistant'}]}", silent, 2);
    limits.n_ctx = CONTEXT;
}

static void test_conversations_that_are_none(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "{'messages':[]}", "messages", "array of 0"},
        {REQUEST_CHAT, "{'messages':'Hi'}", "messages", "\"Hi\""},
        {REQUEST_CHAT, "{'messages':{}}", "messages", "an array"},
        {REQUEST_CHAT, "{'messages':[123]}", "messages[0]", "123"},
        {REQUEST_CHAT, "{'messages':[null]}", "messages[0]", "null"},
        {REQUEST_CHAT, "{'messages':[[]]}", "messages[0]", "an object"},
        {REQUEST_CHAT, "{'messages':[{}]}", "messages[0].role", "missing"},
        {REQUEST_CHAT, "{'messages':[{'content':'Hi'}]}", "messages[0].role", "missing"},
        {REQUEST_CHAT, "{'messages':[{'role':1,'content':'Hi'}]}", "messages[0].role", "is 1"},
        {REQUEST_CHAT, "{'messages':[{'role':'bot','content':'Hi'}]}", "messages[0].role",
         "\"bot\""},
        {REQUEST_CHAT, "{'messages':[{'role':'user'}]}", "messages[0].content", "missing"},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':null}]}", "messages[0].content",
         "missing"},
        {REQUEST_CHAT, "{'messages':[{'role':'system','content':123}]}", "messages[0].content",
         "123"},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':{}}]}", "messages[0].content",
         "an object"},
        {REQUEST_CHAT,
         "{'messages':[{'role':'user','content':'a'},{'role':'user','content':false}]}",
         "messages[1].content", "false"},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':['a']}]}", "messages[0].content[0]",
         "\"a\""},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':[{'type':'text'}]}]}",
         "messages[0].content[0]", "\"text\""},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':[{'text':'a'}]}]}",
         "messages[0].content[0]", "\"type\""},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':[{'type':'text','text':1}]}]}",
         "messages[0].content[0]", "\"text\""},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':[{'type':'x','text':'a'}]}]}",
         "messages[0].content[0]", "\"type\""},
    };
    static const refusal unsupported[] = {
        {REQUEST_CHAT, "{'messages':[{'role':'tool','content':'4'}]}", "messages[0].role", "tools"},
        {REQUEST_CHAT, "{'messages':[{'role':'function','content':'4'}]}", "messages[0].role",
         "tools"},
        {REQUEST_CHAT, "{'messages':[{'role':'assistant','tool_calls':[{}]}]}", "messages[0]",
         "calls a tool"},
        {REQUEST_CHAT,
         "{'messages':[{'role':'user','content':[{'type':'text','text':'a'},"
         "{'type':'image_url','image_url':{'url':'x'}}]}]}",
         "messages[0].content[1]", "\"image_url\""},
    };
    refuse_all(cases, COUNT(cases), 400);
    refuse_all(unsupported, COUNT(unsupported), 501);
}

/* ---- models without some tokens --------------------------------------------------------------- */

static void test_without_a_tokenizer_ids_work(void **state)
{
    (void)state;
    limits.tokenizer = NULL;
    must_take(REQUEST_COMPLETION, "{'prompt':[[1,2],[3]]}");
    request_free(&r);
    must_take(REQUEST_EMBEDDING, "{'input':[1,2]}");
    request_free(&r);
    static const refusal cases[] = {
        {REQUEST_CHAT, "'n':1", "messages", "no tokenizer"},
        {REQUEST_COMPLETION, "'n':1", "prompt", "no tokenizer"},
        {REQUEST_NATIVE, "{'prompt':[1,'a']}", "prompt[1]", "no tokenizer"},
        {REQUEST_EMBEDDING, "{'input':['a']}", "input[0]", "no tokenizer"},
    };
    refuse_all(cases, COUNT(cases), 501);
    limits.tokenizer = tokenizer;
}

static void with_tokenizer(const char *json, const char *config, void (*check)(void))
{
    char *body = body_of(REQUEST_CHAT, json), *settings = body_of(REQUEST_CHAT, config);
    dsmoe_tokenizer *made;
    dsmoe_error error;
    tokenizer_text text = {body, strlen(body), "json"},
                   more = {settings, strlen(settings), "config"};
    if (tokenizer_parse(&text, &more, &made, &error) != DSMOE_OK) fail_msg("%s", error.message);
    limits.tokenizer = made;
    check();
    limits.tokenizer = tokenizer;
    dsmoe_tokenizer_free(made);
    free(settings);
    free(body);
}

static void check_bare(void)
{
    must_refuse(REQUEST_COMPLETION, "{'prompt':''}", 400, "prompt", "is empty");
    must_refuse(REQUEST_NATIVE, "{'prompt':['a','']}", 400, "prompt[1]", "is empty");
    must_refuse(REQUEST_CHAT,
                "{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}",
                501, "messages[1].role", "no token to end an answer");
    limits.vocab_size = 1; /* fewer ids than the tokenizer has */
    must_refuse(REQUEST_COMPLETION, "{'prompt':'ab'}", 400, "prompt", "becomes token 1");
    limits.vocab_size = VOCABULARY;
}

static void test_tokenizers_that_lack_something(void **state)
{
    (void)state;
    const int32_t bos = BOS;
    must_take(REQUEST_COMPLETION, "{'prompt':''}");
    check_prompt(0, &bos, 1);
    request_free(&r);
    must_take(REQUEST_EMBEDDING, "{'input':['','']}");
    check_prompt(1, &bos, 1);
    request_free(&r);
    with_tokenizer(
        "{'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false},"
        "'model':{'type':'BPE','vocab':{'a':0,'b':1},'merges':[]}}",
        "{}", check_bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_a_prompt),
        cmocka_unit_test(test_native_prompts_mix_text_and_ids),
        cmocka_unit_test(test_special_tokens_in_a_text),
        cmocka_unit_test(test_prompts_that_are_none),
        cmocka_unit_test(test_prompts_and_the_context),
        cmocka_unit_test(test_texts_and_the_context),
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_conversations_that_are_none),
        cmocka_unit_test(test_without_a_tokenizer_ids_work),
        cmocka_unit_test(test_tokenizers_that_lack_something),
    };
    return cmocka_run_group_tests(tests, open_limits, close_limits);
}

/* test_request.c - fields of requests: what is read from them, and what is refused, with which name. */
#include "alloc_failures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "request_bodies.h"

/* ---- accepted bodies -------------------------------------------------------------------------- */

static void test_absent_fields_have_defaults(void **state)
{
    (void)state;
    dsmoe_sampler_options expected = dsmoe_sampler_options_default();
    for (int kind = REQUEST_CHAT; kind <= REQUEST_EMBEDDING; kind++) {
        must_take(kind, "'surely unknown':{'a':[1]}");
        assert_int_equal(r.kind, kind);
        assert_int_equal(r.n_prompts, 1);
        assert_int_equal(r.n, 1);
        assert_int_equal(r.max_tokens, kind == REQUEST_EMBEDDING ? 0 : -1);
        assert_memory_equal(&r.sampling, &expected, sizeof expected);
        assert_true(r.cache_prompt);
        assert_false(r.has_seed || r.stream || r.include_usage || r.timings_per_token ||
                     r.ignore_eos || r.logprobs || r.return_tokens || r.routing || r.base64);
        assert_true(r.n_stops == 0 && !r.biases && r.n_top_logprobs == 0);
        request_free(&r);
    }
}

/* null in a field means that the field is absent. */
static void test_null_is_absent(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model",      "n",          "max_tokens",  "max_completion_tokens", "n_predict",
        "top_p",      "min_p",      "temperature", "presence_penalty",      "frequency_penalty",
        "top_k",      "seed",       "stop",        "repeat_penalty",        "repeat_last_n",
        "stream",     "logit_bias", "logprobs",    "stream_options",        "top_logprobs",
        "n_probs",    "tools",      "grammar",     "response_format",       "encoding_format",
        "dimensions", "echo",       "routing",     "cache_prompt",          "id_slot"};
    for (size_t i = 0; i < COUNT(names); i++)
        for (int kind = REQUEST_CHAT; kind <= REQUEST_EMBEDDING; kind++) {
            char text[64];
            snprintf(text, sizeof text, "'%s':null", names[i]);
            must_take(kind, text);
            assert_int_equal(r.n, 1);
            request_free(&r);
        }
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    must_take(REQUEST_CHAT,
              "'model':'whatever','n':3.0,'max_tokens':7,'max_completion_tokens':7,'n_predict':7.0,"
              "'temperature':1.5,'top_p':0,'min_p':0.25,'top_k':5,'repeat_penalty':1.1,"
              "'repeat_last_n':9,'presence_penalty':-2,'frequency_penalty':2,'seed':-5,"
              "'stop':['one','two'],'stream':true,'stream_options':{'include_usage':true},"
              "'timings_per_token':true,'cache_prompt':false,'ignore_eos':true,'logprobs':true,"
              "'top_logprobs':4,'return_tokens':true,'logit_bias':{'3':-100,'4':false,'266':1.5}");
    const dsmoe_sampler_options *o = &r.sampling;
    assert_true(r.n == 3 && r.max_tokens == 7);
    assert_true(o->temperature == 1.5 && o->top_p == 0 && o->min_p == 0.25 && o->top_k == 5);
    assert_true(o->repeat_penalty == 1.1 && o->repeat_last_n == 9);
    assert_true(o->presence_penalty == -2 && o->frequency_penalty == 2);
    assert_true(r.has_seed && o->seed == (uint64_t)-5);
    assert_int_equal(r.n_stops, 2);
    assert_string_equal(r.stops[1], "two");
    assert_true(r.stream && r.include_usage && r.timings_per_token && !r.cache_prompt);
    assert_true(r.ignore_eos && r.logprobs && r.n_top_logprobs == 4 && r.return_tokens);
    assert_true(o->logit_bias == r.biases && o->n_logit_bias == 3);
    assert_true(r.biases[0].id == 3 && r.biases[0].bias == DSMOE_LOGIT_BIAS_BAN);
    assert_true(r.biases[1].id == 4 && r.biases[1].bias == DSMOE_LOGIT_BIAS_BAN);
    assert_true(r.biases[2].id == 266 && r.biases[2].bias == 1.5);
    request_free(&r);
    must_take(REQUEST_NATIVE, "'routing':true,'logit_bias':[[3,2],[5.0,false]],'stop':'x'");
    assert_true(r.routing && r.n_stops == 1 && r.sampling.n_logit_bias == 2);
    assert_true(r.biases[1].id == 5 && r.biases[1].bias == DSMOE_LOGIT_BIAS_BAN);
    request_free(&r);
}

static void test_values_with_a_meaning(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t max_tokens, top_k, last_n;
        uint64_t seed;
        bool has_seed;
    } cases[] = {
        {"'max_tokens':0", 0, 40, 64, 0, false},
        {"'max_tokens':2147483648", INT64_C(1) << 31, 40, 64, 0, false},
        {"'n_predict':-1", -1, 40, 64, 0, false},
        {"'top_k':-1", -1, 0, 64, 0, false},
        {"'top_k':2147483647", -1, INT32_MAX, 64, 0, false},
        {"'repeat_last_n':-1", -1, 40, CONTEXT, 0, false},
        {"'repeat_last_n':1000000000", -1, 40, CONTEXT, 0, false},
        {"'repeat_last_n':0", -1, 40, 0, 0, false},
        {"'seed':-1", -1, 40, 64, 0, false},
        {"'seed':0", -1, 40, 64, 0, true},
        {"'seed':1e3", -1, 40, 64, 1000, true},
        {"'seed':9223372036854775807", -1, 40, 64, INT64_MAX, true},
        {"'seed':-9223372036854775808", -1, 40, 64, UINT64_C(1) << 63, true},
        {"'unknown':9223372036854775808,'seed':1", -1, 40, 64, 1, true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        must_take(REQUEST_COMPLETION, cases[i].text);
        assert_true(r.max_tokens == cases[i].max_tokens && r.sampling.top_k == cases[i].top_k);
        assert_true(r.sampling.repeat_last_n == cases[i].last_n);
        assert_true(r.has_seed == cases[i].has_seed && r.sampling.seed == cases[i].seed);
        request_free(&r);
    }
}

static void test_each_form_asks_for_logprobs(void **state)
{
    (void)state;
    static const struct {
        request_kind kind;
        const char *text;
        bool logprobs;
        int n_top;
    } cases[] = {
        {REQUEST_CHAT, "'logprobs':true", true, 0},
        {REQUEST_CHAT, "'logprobs':true,'top_logprobs':20", true, 20},
        {REQUEST_CHAT, "'logprobs':false", false, 0},
        {REQUEST_COMPLETION, "'logprobs':0", true, 0},
        {REQUEST_COMPLETION, "'logprobs':20", true, 20},
        {REQUEST_NATIVE, "'n_probs':0", false, 0},
        {REQUEST_NATIVE, "'n_probs':3", true, 3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        must_take(cases[i].kind, cases[i].text);
        assert_true(r.logprobs == cases[i].logprobs && r.n_top_logprobs == cases[i].n_top);
        request_free(&r);
    }
}

static void test_empty_lists_are_none(void **state)
{
    (void)state;
    static const char *const texts[] = {"'stop':[]", "'logit_bias':{}", "'logit_bias':[]"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        must_take(REQUEST_CHAT, texts[i]);
        assert_true(r.n_stops == 0 && r.sampling.n_logit_bias == 0 && !r.sampling.logit_bias);
        request_free(&r);
    }
}

/* ---- refused bodies --------------------------------------------------------------------------- */

static void test_bodies_that_are_none(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "", "", "bad JSON"},
        {REQUEST_CHAT, "{:", "", "bad JSON"},
        {REQUEST_CHAT, "null", "", "the body is null; it must be an object"},
        {REQUEST_CHAT, "[]", "", "an array"},
        {REQUEST_NATIVE, "{'prompt':'a','prompt':'b'}", "", "duplicate"},
        {REQUEST_NATIVE, "{'prompt':'a'} x", "", "bad JSON"},
        {REQUEST_NATIVE, "'temperature':NaN", "", "bad JSON"},
        {REQUEST_NATIVE, "'temperature':1e400", "", "bad JSON"},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':'a\\u0000b'}]}", "", "NUL character"},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':'\xff'}]}", "", "bad JSON"},
        {REQUEST_CHAT, "{}", "messages", "missing"},
        {REQUEST_COMPLETION, "{}", "prompt", "missing"},
        {REQUEST_NATIVE, "{'prompt':null}", "prompt", "missing"},
        {REQUEST_EMBEDDING, "{}", "input", "missing"},
    };
    refuse_all(cases, COUNT(cases), 400);
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "'n':0", "n", "n is 0; it must be an integer from 1 to 64"},
        {REQUEST_CHAT, "'n':1000000", "n", "1000000"},
        {REQUEST_CHAT, "'n':65", "n", "65"},
        {REQUEST_CHAT, "'n':1.5", "n", "1.5"},
        {REQUEST_CHAT, "'n':'2'", "n", "n is \"2\""},
        {REQUEST_CHAT, "'n':true", "n", "true"},
        {REQUEST_CHAT, "'max_tokens':-1", "max_tokens", "from 0 to 2147483648"},
        {REQUEST_CHAT, "'max_tokens':9223372036854775808", "max_tokens", "9.22"},
        {REQUEST_CHAT, "'max_tokens':2147483649", "max_tokens", "2147483649"},
        {REQUEST_CHAT, "'max_completion_tokens':-1", "max_completion_tokens", "-1"},
        {REQUEST_NATIVE, "'n_predict':-2", "n_predict", "from -1"},
        {REQUEST_CHAT, "'max_tokens':3,'n_predict':4", "n_predict", "max_tokens is 3"},
        {REQUEST_CHAT, "'max_tokens':3,'max_completion_tokens':4", "max_completion_tokens",
         "equal"},
        {REQUEST_CHAT, "'temperature':-1", "temperature", "from 0 to 100"},
        {REQUEST_CHAT, "'temperature':1e30", "temperature", "1e+30"},
        {REQUEST_CHAT, "'temperature':'hot'", "temperature", "\"hot\""},
        {REQUEST_CHAT, "'temperature':[0]", "temperature", "an array of 1"},
        {REQUEST_CHAT, "'temperature':false", "temperature", "is false"},
        {REQUEST_CHAT, "'top_p':1.01", "top_p", "from 0 to 1"},
        {REQUEST_CHAT, "'top_p':-0.1", "top_p", "-0.1"},
        {REQUEST_CHAT, "'min_p':2", "min_p", "2"},
        {REQUEST_CHAT, "'top_k':-2", "top_k", "from -1"},
        {REQUEST_CHAT, "'top_k':2147483648", "top_k", "2147483648"},
        {REQUEST_CHAT, "'repeat_last_n':-2", "repeat_last_n", "-2"},
        {REQUEST_CHAT, "'repeat_penalty':0", "repeat_penalty", "above 0"},
        {REQUEST_CHAT, "'repeat_penalty':1e300", "repeat_penalty", "1e+300"},
        {REQUEST_CHAT, "'presence_penalty':101", "presence_penalty", "-100 to 100"},
        {REQUEST_CHAT, "'frequency_penalty':-101", "frequency_penalty", "-101"},
        {REQUEST_CHAT, "'seed':1180591620717411303424", "seed", "1.18"},
        {REQUEST_CHAT, "'seed':1e18", "seed", "integer"},
        {REQUEST_CHAT, "'seed':0.5", "seed", "0.5"},
        {REQUEST_CHAT, "'seed':'7'", "seed", "\"7\""},
        {REQUEST_CHAT, "'logprobs':true,'top_logprobs':1000000000", "top_logprobs", "0 to 20"},
        {REQUEST_CHAT, "'logprobs':true,'top_logprobs':-1", "top_logprobs", "-1"},
        {REQUEST_CHAT, "'top_logprobs':3", "top_logprobs", "needs \"logprobs\": true"},
        {REQUEST_CHAT, "'logprobs':3", "logprobs", "true or false"},
        {REQUEST_COMPLETION, "'logprobs':21", "logprobs", "0 to 20"},
        {REQUEST_COMPLETION, "'logprobs':true", "logprobs", "true"},
        {REQUEST_NATIVE, "'n_probs':1000000000", "n_probs", "0 to 20"},
        {REQUEST_NATIVE, "'n_discard':-1", "n_discard", "0 or more"},
        {REQUEST_NATIVE, "'n_keep':-1", "n_keep", "0 or more"},
    };
    refuse_all(cases, COUNT(cases), 400);
}

static void test_values_of_the_wrong_kind(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "'model':7", "model", "a string"},
        {REQUEST_EMBEDDING, "'model':{}", "model", "an object"},
        {REQUEST_CHAT, "'stream':'yes'", "stream", "true or false"},
        {REQUEST_CHAT, "'stream':1", "stream", "is 1"},
        {REQUEST_CHAT, "'timings_per_token':0", "timings_per_token", "0"},
        {REQUEST_CHAT, "'cache_prompt':[]", "cache_prompt", "an array of 0"},
        {REQUEST_CHAT, "'ignore_eos':''", "ignore_eos", "\"\""},
        {REQUEST_NATIVE, "'return_tokens':2", "return_tokens", "2"},
        {REQUEST_CHAT, "'routing':'on'", "routing", "\"on\""},
        {REQUEST_CHAT, "'routing':true,'n':2", "routing", "one answer"},
        {REQUEST_CHAT, "'stream_options':{}", "stream_options", "needs \"stream\": true"},
        {REQUEST_CHAT, "'stream':false,'stream_options':{}", "stream_options", "needs"},
        {REQUEST_CHAT, "'stream':true,'stream_options':3", "stream_options", "an object"},
        {REQUEST_CHAT, "'stream':true,'stream_options':{'include_usage':1}",
         "stream_options.include_usage", "true or false"},
        {REQUEST_EMBEDDING, "'encoding_format':'hex'", "encoding_format", "\"hex\""},
        {REQUEST_EMBEDDING, "'encoding_format':1", "encoding_format", "\"base64\""},
        {REQUEST_CHAT, "'stop':3", "stop", "array of strings"},
        {REQUEST_CHAT, "'stop':''", "stop", "0 bytes"},
        {REQUEST_CHAT, "'stop':['a','']", "stop[1]", "1 to 256"},
        {REQUEST_CHAT, "'stop':['a',null]", "stop[1]", "null"},
        {REQUEST_CHAT, "'logit_bias':'x'", "logit_bias", "\"x\""},
        {REQUEST_CHAT, "'logit_bias':{'267':1}", "logit_bias",
         "token 267; ids must be from 0 to 266"},
        {REQUEST_CHAT, "'logit_bias':{'99999999999999999999':1}", "logit_bias", "token ids"},
        {REQUEST_CHAT, "'logit_bias':{'-1':1}", "logit_bias", "\"-1\""},
        {REQUEST_CHAT, "'logit_bias':{'':1}", "logit_bias", "\"\""},
        {REQUEST_CHAT, "'logit_bias':{'Hello':1}", "logit_bias", "\"Hello\""},
        {REQUEST_CHAT, "'logit_bias':{'1':101}", "logit_bias", "101"},
        {REQUEST_CHAT, "'logit_bias':{'1':-101}", "logit_bias", "-101"},
        {REQUEST_CHAT, "'logit_bias':{'1':true}", "logit_bias", "true"},
        {REQUEST_CHAT, "'logit_bias':{'1':null}", "logit_bias", "null"},
        {REQUEST_NATIVE, "'logit_bias':[[1,2],[3]]", "logit_bias", "logit_bias[1]"},
        {REQUEST_NATIVE, "'logit_bias':[3]", "logit_bias", "is 3"},
        {REQUEST_NATIVE, "'logit_bias':[['a',1]]", "logit_bias", "logit_bias[0]"},
        {REQUEST_NATIVE, "'logit_bias':[[-1,1]]", "logit_bias", "token -1"},
    };
    refuse_all(cases, COUNT(cases), 400);
}

static void test_lists_that_are_too_long(void **state)
{
    (void)state;
    must_refuse_many(REQUEST_CHAT, "'stop':['a'", ",'a'", 16, "]", "stop", "array of 17");
    must_refuse_many(REQUEST_CHAT, "'stop':['a'", ",'a'", 99999, "]", "stop", "array of 100000");
    must_refuse_many(REQUEST_CHAT, "'stop':'", "a", 257, "'", "stop", "257 bytes");
    must_refuse_many(REQUEST_CHAT, "'logit_bias':[[1,1]", ",[1,1]", 1024, "]", "logit_bias",
                     "1025");
    must_refuse_many(REQUEST_CHAT, "{'messages':[0", ",0", 4096, "]}", "messages", "array of 4097");
    must_refuse_many(REQUEST_COMPLETION, "{'prompt':['a'", ",'a'", 64, "]}", "prompt",
                     "65 prompts");
    must_refuse_many(REQUEST_EMBEDDING, "{'input':['a'", ",'a'", 64, "]}", "input", "65 prompts");
    must_refuse_many(REQUEST_CHAT, "'json_schema':", "[", 60000, "0", "", "nested deeper");
    char *stop = repeated("'stop':['", "a", 256, "']");
    must_take(REQUEST_CHAT, stop);
    assert_int_equal(strlen(r.stops[0]), 256);
    request_free(&r);
    free(stop);
    must_refuse(REQUEST_COMPLETION, "{'n':33,'prompt':['a','b']}", 400, "prompt",
                "33 answers each");
    must_refuse(REQUEST_COMPLETION, "{'routing':true,'prompt':['a','b']}", 400, "routing",
                "2 prompts");
}

static void test_what_cannot_be_honoured(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "'tools':[{'type':'function'}]", "tools", "calls no tools"},
        {REQUEST_CHAT, "'tools':[{}],'tool_choice':'none'", "tools", "an array of 1"},
        {REQUEST_CHAT, "'tool_choice':'required'", "tool_choice", "\"required\""},
        {REQUEST_CHAT, "'tool_choice':{'type':'function'}", "tool_choice", "an object"},
        {REQUEST_CHAT, "'functions':[1]", "functions", "tools"},
        {REQUEST_CHAT, "'function_call':{'name':'f'}", "function_call", "tools"},
        {REQUEST_CHAT, "'web_search_options':{}", "web_search_options", "tools"},
        {REQUEST_CHAT, "'response_format':{'type':'json_object'}", "response_format", "grammar"},
        {REQUEST_CHAT, "'response_format':{'type':'json_schema','json_schema':{}}",
         "response_format", "grammar"},
        {REQUEST_NATIVE, "'grammar':'root ::= [0-9]+'", "grammar", "constrained by a grammar"},
        {REQUEST_NATIVE, "'grammar':'((('", "grammar", "\"(((\""},
        {REQUEST_NATIVE, "'json_schema':{}", "json_schema", "grammar"},
        {REQUEST_NATIVE, "'grammar_lazy':true", "grammar_lazy", "grammar"},
        {REQUEST_COMPLETION, "'echo':true", "echo", "not sent back"},
        {REQUEST_COMPLETION, "'echo':true,'logprobs':1", "echo", "not sent back"},
        {REQUEST_COMPLETION, "'best_of':2", "best_of", "2"},
        {REQUEST_COMPLETION, "'best_of':1000000000,'n':2", "best_of", "1000000000"},
        {REQUEST_COMPLETION, "'suffix':'end'", "suffix", "\"end\""},
        {REQUEST_CHAT, "'modalities':['text','audio']", "modalities", "text only"},
        {REQUEST_CHAT, "'audio':{'voice':'x'}", "audio", "text only"},
        {REQUEST_NATIVE, "'image_data':[{}]", "image_data", "text only"},
        {REQUEST_NATIVE, "'input_extra':[{}]", "input_extra", "gaps"},
        {REQUEST_NATIVE, "'samplers':['top_k']", "samplers", "order"},
        {REQUEST_NATIVE, "'samplers':'kfypmt'", "samplers", "order"},
        {REQUEST_NATIVE, "'mirostat':2", "mirostat", "no such sampler"},
        {REQUEST_NATIVE, "'typical_p':0.5", "typical_p", "0.5"},
        {REQUEST_NATIVE, "'typ_p':0", "typ_p", "is 0"},
        {REQUEST_NATIVE, "'dry_multiplier':0.8", "dry_multiplier", "0.8"},
        {REQUEST_NATIVE, "'xtc_probability':0.1", "xtc_probability", "0.1"},
        {REQUEST_NATIVE, "'dynatemp_range':1", "dynatemp_range", "1"},
        {REQUEST_NATIVE, "'top_n_sigma':1", "top_n_sigma", "1"},
        {REQUEST_NATIVE, "'post_sampling_probs':true", "post_sampling_probs", "own"},
        {REQUEST_NATIVE, "'n_indent':4", "n_indent", "4"},
        {REQUEST_NATIVE, "'t_max_predict_ms':100", "t_max_predict_ms", "100"},
        {REQUEST_NATIVE, "'n_keep':5", "n_keep", "shifted"},
        {REQUEST_NATIVE, "'n_discard':5", "n_discard", "shifted"},
        {REQUEST_NATIVE, "'response_fields':['content']", "response_fields", "whole"},
        {REQUEST_NATIVE, "'lora':[{'id':0,'scale':1}]", "lora", "adapters"},
        {REQUEST_NATIVE, "'id_slot':0", "id_slot", "any slot"},
        {REQUEST_EMBEDDING, "'dimensions':8", "dimensions", "width"},
    };
    refuse_all(cases, COUNT(cases), 501);
    char *nested = repeated("'grammar':'root ::= ", "(", 60000, "'");
    must_refuse(REQUEST_NATIVE, nested, 501, "grammar", "…");
    free(nested);
}

static void test_fields_that_ask_for_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "'tools':[]",         "'tool_choice':'none'",
        "'functions':[]",     "'tools':[],'tool_choice':'auto'",
        "'grammar':''",       "'response_format':{'type':'text'}",
        "'echo':false",       "'grammar_lazy':false",
        "'best_of':2,'n':2",  "'suffix':''",
        "'mirostat':0",       "'modalities':['text']",
        "'typical_p':1.0",    "'typ_p':1",
        "'dry_multiplier':0", "'xtc_probability':0.0",
        "'top_n_sigma':-1",   "'dynatemp_range':0",
        "'n_keep':0",         "'n_discard':0.0",
        "'lora':[]",          "'id_slot':-1",
        "'n_indent':0",       "'t_max_predict_ms':-1",
        "'tool_choice':''",   "'response_fields':[]",
        "'image_data':[]",    "'post_sampling_probs':false",
        "'dimensions':8",     "'encoding_format':'hex'",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        must_take(REQUEST_NATIVE, texts[i]);
        request_free(&r);
    }
    must_take(REQUEST_EMBEDDING, "'tools':3,'n':0,'temperature':'x'");
    request_free(&r);
}

static void test_refused_fields_that_make_no_sense(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "'tools':'all'", "tools", "an array"},
        {REQUEST_CHAT, "'tool_choice':1", "tool_choice", "a string or an object"},
        {REQUEST_CHAT, "'response_format':'json'", "response_format", "\"type\""},
        {REQUEST_CHAT, "'response_format':{}", "response_format", "\"type\""},
        {REQUEST_NATIVE, "'grammar':1", "grammar", "a string"},
        {REQUEST_NATIVE, "'grammar_lazy':'no'", "grammar_lazy", "true or false"},
        {REQUEST_COMPLETION, "'echo':0", "echo", "true or false"},
        {REQUEST_COMPLETION, "'best_of':1,'n':2", "best_of", "not below n"},
        {REQUEST_COMPLETION, "'best_of':1.5", "best_of", "1.5"},
        {REQUEST_CHAT, "'modalities':'text'", "modalities", "array of strings"},
        {REQUEST_CHAT, "'modalities':['audio',1]", "modalities", "array of strings"},
        {REQUEST_NATIVE, "'samplers':1", "samplers", "an array or a string"},
        {REQUEST_NATIVE, "'mirostat':'x'", "mirostat", "a number"},
        {REQUEST_NATIVE, "'top_n_sigma':'x'", "top_n_sigma", "a number"},
        {REQUEST_NATIVE, "'id_slot':-2", "id_slot", "at least -1"},
        {REQUEST_NATIVE, "'lora':{}", "lora", "an array"},
    };
    refuse_all(cases, COUNT(cases), 400);
}

/* ---- errors ----------------------------------------------------------------------------------- */

static void check_error_body(int status, const char *param, const char *type)
{
    json_node *root;
    request_refuse(&e, status, param, "a \"word\" and %s", "\ta\n\x7f\xc3");
    char *body = request_error_body(&e);
    assert_non_null(body);
    assert_int_equal(json_node_parse(body, strlen(body), "body", &root, NULL), DSMOE_OK);
    const json_node *error = json_node_member(root, "error");
    assert_int_equal(json_node_count(error), 4);
    assert_string_equal(json_node_string(json_node_member(error, "message"), NULL),
                        "a \"word\" and ?a???");
    assert_string_equal(json_node_string(json_node_member(error, "type"), NULL), type);
    assert_int_equal(json_node_integer(json_node_member(error, "code")), status);
    const json_node *node = json_node_member(error, "param");
    if (*param)
        assert_string_equal(json_node_string(node, NULL), param);
    else
        assert_int_equal(json_node_kind(node), JSON_KIND_NULL);
    json_node_free(root);
    free(body);
}

static void test_error_bodies(void **state)
{
    (void)state;
    check_error_body(400, "n", "invalid_request_error");
    check_error_body(401, "", "authentication_error");
    check_error_body(403, "", "permission_error");
    check_error_body(404, "", "not_found_error");
    check_error_body(405, "", "invalid_request_error");
    check_error_body(413, "", "invalid_request_error");
    check_error_body(429, "", "rate_limit_error");
    check_error_body(500, "", "server_error");
    check_error_body(501, "tools", "not_supported_error");
    check_error_body(503, "", "unavailable_error");
    /* Long texts of a client are cut between characters. */
    char *text = repeated("'seed':'x", "ö", 1000, "'");
    must_refuse(REQUEST_CHAT, text, 400, "seed", "öö…\"; it must be an integer");
    free(text);
}

/* ---- running out of memory -------------------------------------------------------------------- */

static const char *attempted;
static request_kind attempted_kind;

static dsmoe_status try_to_read(dsmoe_error *error)
{
    bool good = take(attempted_kind, attempted);
    request_free(&r);
    if (good) return DSMOE_OK;
    error->status = e.status == 503 ? DSMOE_ERROR_MEMORY : DSMOE_ERROR_FORMAT;
    snprintf(error->message, sizeof error->message, "%s", e.message);
    if (e.status == 503) assert_string_equal(e.message, "not enough memory");
    return error->status;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {REQUEST_CHAT, "'stop':['a','b'],'logit_bias':{'1':2}", NULL, NULL},
        {REQUEST_CHAT, "{'messages':[{'role':'user','content':[{'type':'text','text':'a'}]}]}",
         NULL, NULL},
        {REQUEST_COMPLETION, "{'prompt':['a b c',[1,2,3]]}", NULL, NULL},
        {REQUEST_NATIVE, "{'prompt':['a',1,'b']}", NULL, NULL},
        {REQUEST_EMBEDDING, "'model':'x'", NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        attempted = cases[i].text;
        attempted_kind = cases[i].kind;
        check_failures(attempted, try_to_read, ALLOC_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent_fields_have_defaults),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_values_with_a_meaning),
        cmocka_unit_test(test_each_form_asks_for_logprobs),
        cmocka_unit_test(test_empty_lists_are_none),
        cmocka_unit_test(test_bodies_that_are_none),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_values_of_the_wrong_kind),
        cmocka_unit_test(test_lists_that_are_too_long),
        cmocka_unit_test(test_what_cannot_be_honoured),
        cmocka_unit_test(test_fields_that_ask_for_nothing),
        cmocka_unit_test(test_refused_fields_that_make_no_sense),
        cmocka_unit_test(test_error_bodies),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, open_limits, close_limits);
}

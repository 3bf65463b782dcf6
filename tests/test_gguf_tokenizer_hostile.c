/* test_gguf_tokenizer_hostile.c - damaged or contradictory metadata of tokenizers: each case must be a
 * one-line error that names the file and the key. */
#include "made_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_image.h"
#include "scratch.h"
#include "text/gguf_keys.h"

static void refuses_file(const char *message)
{
    dsmoe_error error = {0};
    dsmoe_tokenizer *t = (dsmoe_tokenizer *)1;
    assert_int_not_equal(dsmoe_tokenizer_open(path, &t, &error), DSMOE_OK);
    assert_null(t);
    if (!strstr(error.message, message) || !strstr(error.message, path) ||
        strchr(error.message, '\n'))
        fail_msg("\"%s\" says nothing of \"%s\"", error.message, message);
}

static void must_fail(const made_tokenizer *m, const char *message)
{
    write_made(m);
    refuses_file(message);
}

static void test_kinds(void **state)
{
    (void)state;
    made_tokenizer m = plain_tokenizer();
    m.model = "llama";
    must_fail(&m, "tokenizer.ggml.model \"llama\" is not supported, only \"gpt2\"");
    m = plain_tokenizer();
    m.pre = "llama-bpe";
    must_fail(&m, "\"llama-bpe\" is not supported, only \"deepseek-llm\"");
    m = plain_tokenizer();
    m.json = "{";
    must_fail(&m, "bad JSON");
    m.json = "{}";
    must_fail(&m, "model");
}

static void test_ids(void **state)
{
    (void)state;
    static const int64_t ids[] = {MADE_TOKENS, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < COUNT(ids); i++) {
        made_tokenizer m = plain_tokenizer();
        m.bos = ids[i];
        must_fail(&m, "tokenizer.ggml.bos_token_id is ");
        m = plain_tokenizer();
        m.eos = ids[i];
        must_fail(&m, "tokenizer.ggml.eos_token_id is ");
        m = plain_tokenizer();
        m.padding = ids[i];
        must_fail(&m, "tokenizer.ggml.padding_token_id is ");
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const int32_t strange[] = {1, 1, 1, 1, 1, 3, 3, 4, 9}, zero[MADE_TOKENS] = {0};
    made_tokenizer m = plain_tokenizer();
    m.types_are_strings = true;
    must_fail(&m, "tokenizer.ggml.token_type");
    m = plain_tokenizer();
    m.merges_are_numbers = true;
    must_fail(&m, "tokenizer.ggml.merges");
    m = plain_tokenizer();
    m.tokens_are_numbers = true;
    must_fail(&m, "tokenizer.ggml.tokens");
    m = plain_tokenizer();
    m.n_types = MADE_TOKENS - 1;
    must_fail(&m, "tokenizer.ggml.token_type has 8 types for the 9 tokens");
    m = plain_tokenizer();
    m.types = strange;
    must_fail(&m, "tokenizer.ggml.token_type[8] is 9");
    m.types = zero;
    must_fail(&m, "tokenizer.ggml.token_type[0] is 0");
    m = plain_tokenizer();
    m.merges = NULL;
    must_fail(&m, "tokenizer.ggml.merges");
    m = plain_tokenizer();
    m.tokens = NULL;
    must_fail(&m, "tokenizer.ggml.tokens");
}

/* Arrays of bytes where strings or 32-bit numbers are required. */
static void test_arrays_of_bytes(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                                       "tokenizer.ggml.token_type"};
    for (size_t wrong = 0; wrong < COUNT(keys); wrong++) {
        gguf_image image = begin_gguf(0, 4);
        put_key_string(&image, "tokenizer.ggml.model", "gpt2");
        for (size_t i = 0; i < COUNT(keys); i++) {
            uint32_t type = i == wrong ? GGUF_U8 : i == 2 ? GGUF_I32 : GGUF_STRING;
            put_key_array(&image, keys[i], type, 1);
            if (type == GGUF_U8) put_data(&image, 1, 1);
            if (type == GGUF_I32) put_u32(&image, GGUF_TOKEN_NORMAL);
            if (type == GGUF_STRING) put_string(&image, i ? "a b" : "a");
        }
        write_bytes(image.bytes, image.size);
        free(image.bytes);
        refuses_file(keys[wrong]);
    }
}

/* Every buffer is large enough for the longest token that is allowed. */
static void test_longest_token(void **state)
{
    (void)state;
    enum { LONGEST = 4096 };
    char longest[LONGEST + 1];
    memset(longest, 'x', LONGEST);
    longest[LONGEST] = '\0';
    made_tokenizer m = plain_tokenizer();
    m.odd = (gguf_string){longest, LONGEST};
    m.merges = (const char *const[]){NULL};
    dsmoe_tokenizer *t = open_made(&m);
    size_t length = 0;
    const char *piece = dsmoe_tokenizer_piece(t, 1, &length);
    assert_int_equal(length, LONGEST);
    assert_memory_equal(piece, longest, LONGEST);
    int32_t ids[] = {1, 0, 1};
    char *text;
    assert_int_equal(dsmoe_tokenizer_decode(t, ids, COUNT(ids), &text, &length, NULL), DSMOE_OK);
    assert_int_equal(length, 2 * LONGEST + 1);
    assert_int_equal(strlen(text), length);
    free(text);
    dsmoe_tokenizer_free(t);
}

/* A tokenizer.json inside the file is checked like any other. test_tokenizer_hostile.c has all cases. */
static void test_bad_json(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *added, *message;
    } cases[] = {
        {"a", "{'id':0,'content':'x'}", "id 0"},
        {"a", "{'id':2147483647,'content':'x'}", "id 2147483647"},
        {"a", "{'id':9,'content':''}", "content has 0 bytes"},
        {"(?R)", "", "pattern"},
        {"\\\\C", "", "pattern"},
        {"(", "", "pattern"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':"
                 "{'Regex':'%s'},'behavior':'Isolated','invert':false},{'type':'ByteLevel',"
                 "'add_prefix_space':false,'use_regex':false}]},'model':{'vocab':{'a':0,'b':1},"
                 "'merges':[]},'added_tokens':[%s]}",
                 cases[i].pattern, cases[i].added);
        for (char *at = json; *at; at++)
            if (*at == '\'') *at = '"';
        made_tokenizer m = plain_tokenizer();
        m.json = json;
        must_fail(&m, cases[i].message);
    }
}

static void test_tokens(void **state)
{
    (void)state;
    static char longest[100000];
    memset(longest, 'x', sizeof longest);
    static const struct {
        gguf_string token;
        const char *message;
    } cases[] = {
        {{"", 0}, "tokenizer.ggml.tokens[1] is empty"},
        {{"\xc3(", 2}, "tokenizer.ggml.tokens[1] is not UTF-8"},
        {{"b\0c", 3}, "tokenizer.ggml.tokens[1] has a NUL in it"},
        {{longest, sizeof longest}, "tokenizer.ggml.tokens[1] is longer than any token"},
        {{longest, 5000}, "5000 bytes"},
        {{"a", 1}, "duplicate"},
        {{"<s>", 3}, "<s>"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        made_tokenizer m = plain_tokenizer();
        m.odd = cases[i].token;
        m.merges = (const char *const[]){NULL};
        must_fail(&m, cases[i].message);
    }
    /* Byte tokens of other kinds of tokenizers are ordinary tokens here. */
    made_tokenizer m = plain_tokenizer();
    static const int32_t bytes[] = {1, 6, 1, 1, 1, 3, 3, 4, 2};
    m.odd = (gguf_string){"<0x-1>", 6};
    m.types = bytes;
    m.merges = (const char *const[]){NULL};
    dsmoe_tokenizer_free(open_made(&m));
}

static void test_merges(void **state)
{
    (void)state;
    static const struct {
        const char *merge, *message;
    } cases[] = {
        {"ab", "merges[1]"},  {"a  b", "merges[1]"}, {"a b c", "merges[1]"},
        {"a q", "merges[1]"}, {"b a", "merges[1]"},  {"a b", "merges[1]"},
        {" b", "merges[1]"},  {"", "merges[1]"},     {"a ", "merges[1]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        made_tokenizer m = plain_tokenizer();
        m.merges = (const char *const[]){"a b", cases[i].merge, NULL};
        must_fail(&m, cases[i].message);
    }
}

/* A million merges of tokens that do not exist. */
static void test_many_merges(void **state)
{
    (void)state;
    enum { N = 1000000 };
    gguf_string *many = malloc(N * sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < N; i++) many[i] = (gguf_string){"x y", 3};
    gguf_writer *w = begin_file();
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_strings(w, "tokenizer.ggml.tokens", made_tokens_list, (gguf_string){0});
    gguf_writer_strings(w, "tokenizer.ggml.merges", many, N);
    end_file(w);
    free(many);
    dsmoe_error error;
    dsmoe_tokenizer *t;
    assert_int_equal(dsmoe_tokenizer_open(path, &t, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "merges[0]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_ids),
        cmocka_unit_test(test_arrays),        cmocka_unit_test(test_arrays_of_bytes),
        cmocka_unit_test(test_longest_token), cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_tokens),        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_many_merges),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

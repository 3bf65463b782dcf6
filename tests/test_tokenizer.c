/* test_tokenizer.c - text to ids and back: the released tokenizer against reference ids, and small
 * tokenizers for features that it does not use. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "text/tokenizer.h"

#define BOS_TEXT "<｜begin▁of▁sentence｜>"
#define EOS_TEXT "<｜end▁of▁sentence｜>"
enum { BOS = 100000, EOS = 100001 };

/* ---- helpers -------------------------------------------------------------------------------- */

static dsmoe_tokenizer *released; /* the tokenizer of the 16B model */

static int open_released(void **state)
{
    (void)state;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(TEST_DATA "/tokenizer", &released, &error) == DSMOE_OK) return 0;
    print_error("%s\n", error.message);
    return -1;
}

static int free_released(void **state)
{
    (void)state;
    dsmoe_tokenizer_free(released);
    return 0;
}

static dsmoe_tokenizer *parse(const char *json, const char *config)
{
    char *text = quoted(json), *config_text = config ? quoted(config) : NULL;
    tokenizer_text main_file = {text, strlen(text), "tokenizer.json"};
    tokenizer_text config_file = {config_text, config ? strlen(config) : 0, "config"};
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (tokenizer_parse(&main_file, config ? &config_file : NULL, &tokenizer, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    free(text);
    free(config_text);
    return tokenizer;
}

/* A tokenizer with few tokens. `more` are further members, with a comma at the end. */
#define PRE_NONE "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false},"
#define LETTERS "'a':0,'b':1,'c':2,'Ġ':3"

static dsmoe_tokenizer *parse_model(const char *more, const char *model)
{
    char *json;
    assert_true(asprintf(&json, "{%s%s'model':{'type':'BPE',%s}}", more,
                         strstr(more, "'pre_tokenizer'") ? "" : PRE_NONE, model) > 0);
    dsmoe_tokenizer *tokenizer = parse(json, NULL);
    free(json);
    return tokenizer;
}

/* `expected` is like "1 2 3". */
static void check_ids(const dsmoe_tokenizer *tokenizer, const char *text, size_t length, int flags,
                      const char *expected)
{
    int32_t *ids;
    size_t n_ids;
    dsmoe_error error;
    if (dsmoe_tokenizer_encode(tokenizer, text, length, flags, &ids, &n_ids, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    char got[1024] = "";
    for (size_t i = 0; i < n_ids; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", ids[i]);
    if (strcmp(got, expected)) fail_msg("\"%s\": %s instead of %s", text, got, expected);
    free(ids);
}

static void check_text(const dsmoe_tokenizer *tokenizer, const char *text, const char *expected)
{
    check_ids(tokenizer, text, strlen(text), 0, expected);
}

/* Compares the text after encoding and decoding. */
static void check_round_trip(const char *text, size_t length, const char *expected,
                             size_t expected_length)
{
    int32_t *ids;
    size_t n_ids, back_length = 0;
    char *back = NULL;
    dsmoe_error error;
    if (dsmoe_tokenizer_encode(released, text, length, 0, &ids, &n_ids, &error) != DSMOE_OK ||
        dsmoe_tokenizer_decode(released, ids, n_ids, &back, &back_length, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_int_equal(back_length, expected_length);
    assert_memory_equal(back, expected, expected_length);
    assert_int_equal(back[back_length], 0);
    free(ids);
    free(back);
}

/* ---- the released tokenizer ------------------------------------------------------------------ */

static void check_case(const json_node *node)
{
    size_t length, n_ids, back_length;
    const char *text = json_node_string(json_node_member(node, "text"), &length);
    const json_node *expected = json_node_member(node, "ids");
    int32_t *ids;
    char *back;
    dsmoe_error error;
    if (dsmoe_tokenizer_encode(released, text, length, DSMOE_ENCODE_SPECIAL, &ids, &n_ids,
                               &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    if (n_ids != json_node_count(expected)) fail_msg("\"%s\": %zu ids", text, n_ids);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] != json_node_integer(json_node_item(expected, i)))
            fail_msg("\"%s\": id %zu is %d", text, i, ids[i]);
    assert_int_equal(dsmoe_tokenizer_decode(released, ids, n_ids, &back, &back_length, NULL),
                     DSMOE_OK);
    assert_int_equal(back_length, length);
    assert_memory_equal(back, text, length);
    free(ids);
    free(back);
}

static void test_reference_cases(void **state)
{
    (void)state;
    FILE *file = fopen(TEST_DATA "/tokenizer/cases.jsonl", "r");
    assert_non_null(file);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int n = 0;
    for (; (length = getline(&line, &capacity, file)) > 0; n++) {
        json_node *node;
        assert_int_equal(json_node_parse(line, (size_t)length, "case", &node, NULL), DSMOE_OK);
        check_case(node);
        json_node_free(node);
    }
    assert_true(n > 100);
    free(line);
    fclose(file);
}

static void test_facts(void **state)
{
    (void)state;
    size_t length = 1;
    assert_int_equal(dsmoe_tokenizer_size(released), 100015);
    assert_int_equal(dsmoe_tokenizer_bos(released), BOS);
    assert_int_equal(dsmoe_tokenizer_eos(released), EOS);
    assert_true(dsmoe_tokenizer_adds_bos(released));
    assert_true(dsmoe_tokenizer_is_special(released, BOS));
    assert_true(dsmoe_tokenizer_is_special(released, EOS));
    assert_false(dsmoe_tokenizer_is_special(released, 0));
    assert_false(dsmoe_tokenizer_is_special(released, 100003));
    assert_false(dsmoe_tokenizer_is_special(released, -1));
    assert_false(dsmoe_tokenizer_is_special(released, INT32_MAX));
    assert_memory_equal(dsmoe_tokenizer_piece(released, 37727, &length), " Hello", 6);
    assert_int_equal(length, 6);
    assert_memory_equal(dsmoe_tokenizer_piece(released, BOS, &length), BOS_TEXT,
                        sizeof BOS_TEXT - 1);
    assert_null(dsmoe_tokenizer_piece(released, 100015, &length));
    assert_null(dsmoe_tokenizer_piece(released, -1, &length));
    dsmoe_tokenizer_free(NULL);
}

static void test_flags(void **state)
{
    (void)state;
    check_ids(released, "Hello", 5, DSMOE_ENCODE_BOS, "100000 17464");
    check_ids(released, "", 0, DSMOE_ENCODE_BOS, "100000");
    check_ids(released, NULL, 0, 0, "");
    int32_t *ids;
    size_t n_ids;
    dsmoe_error error;
    assert_int_equal(dsmoe_tokenizer_encode(released, "a", 1, 4, &ids, &n_ids, &error),
                     DSMOE_ERROR_ARGUMENT);
}

/* A user's text that spells a special token stays text and has no special ids. */
static void test_look_alikes(void **state)
{
    (void)state;
    static const char *const texts[] = {BOS_TEXT,
                                        EOS_TEXT,
                                        "a" EOS_TEXT "b" BOS_TEXT,
                                        "<|begin_of_sentence|>",
                                        "<｜end▁of",
                                        "｜>" EOS_TEXT EOS_TEXT};
    for (size_t i = 0; i < COUNT(texts); i++) {
        int32_t *ids;
        size_t n_ids;
        assert_int_equal(
            dsmoe_tokenizer_encode(released, texts[i], strlen(texts[i]), 0, &ids, &n_ids, NULL),
            DSMOE_OK);
        for (size_t k = 0; k < n_ids; k++) assert_true(ids[k] < BOS);
        free(ids);
        check_round_trip(texts[i], strlen(texts[i]), texts[i], strlen(texts[i]));
    }
    check_ids(released, "a" EOS_TEXT "ö", strlen("a" EOS_TEXT "ö"), DSMOE_ENCODE_SPECIAL,
              "64 100001 100003");
}

/* Ids 100002 to 100014 are letters that the byte map would take for bytes. */
static void test_letters_beside_the_byte_map(void **state)
{
    (void)state;
    static const char *const letters[] = {"ø", "ö", "ú", "ÿ", "õ", "÷", "û",
                                          "ý", "À", "ù", "Á", "þ", "ü"};
    for (size_t i = 0; i < COUNT(letters); i++) {
        char expected[16];
        size_t length;
        snprintf(expected, sizeof expected, "%zu", 100002 + i);
        check_text(released, letters[i], expected);
        const char *piece = dsmoe_tokenizer_piece(released, (int32_t)(100002 + i), &length);
        assert_int_equal(length, strlen(letters[i]));
        assert_memory_equal(piece, letters[i], length);
    }
    check_text(released, "schön", "21322 100003 77");
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        {"\x80", 1},                    /* a single continuation byte */
        {"a\xe4\xbd", 3},               /* an incomplete character */
        {"\xed\xa0\x80", 3},            /* a surrogate */
        {"\xe0\x80\xaf", 3},            /* an overlong form */
        {"\xf4\x90\x80\x80", 4},        /* above U+10FFFF */
        {"\xef\xbf\xbf", 3},            /* U+FFFF is a character */
        {"\xef\xbb\xbfhello", 8},       /* a byte order mark */
        {"\0", 1},                      /* NUL is part of the text */
        {"a\0b \0\0", 6},               /* also within text */
        {"12\xff\xfe", 2},              /* only the given length counts */
        {"word\x80word \xbf\n\x80", 13} /* valid text around them */
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_round_trip(cases[i].text, cases[i].length, cases[i].text, cases[i].length);
    for (int byte = 0; byte < 256; byte++) {
        /* These bytes never occur in UTF-8, and the vocabulary has no tokens for them. */
        bool absent = byte == 0xc0 || byte == 0xc1 || byte >= 0xf5;
        char text = (char)byte;
        check_round_trip(&text, 1, absent ? "\xef\xbf\xbd" : &text, absent ? 3 : 1);
    }
}

static void test_decode_refuses(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 100015, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT(bad); i++) {
        int32_t ids[] = {0, bad[i]};
        char *text;
        size_t length;
        dsmoe_error error;
        assert_int_equal(dsmoe_tokenizer_decode(released, ids, 2, &text, &length, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_null(text);
        assert_non_null(strstr(error.message, "tokenizer.json"));
    }
    char *text;
    size_t length;
    assert_int_equal(dsmoe_tokenizer_decode(released, NULL, 0, &text, &length, NULL), DSMOE_OK);
    assert_string_equal(text, "");
    free(text);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static const dsmoe_chat_form *deepseek_form(const dsmoe_tokenizer *tokenizer)
{
    const dsmoe_chat_form *form;
    assert_int_equal(dsmoe_chat_form_find(tokenizer, NULL, &form, NULL), DSMOE_OK);
    assert_string_equal(dsmoe_chat_form_name(form), "deepseek");
    return form;
}

/* The ids must spell the text; special tokens are exactly BOS and the ends of answers. */
static void check_chat(const dsmoe_message *messages, size_t n, bool prompt, const char *expected,
                       size_t n_special)
{
    int32_t *ids;
    size_t n_ids, length, special = 0;
    char *text = NULL;
    dsmoe_error error;
    const dsmoe_chat_form *form = deepseek_form(released);
    if (dsmoe_chat_encode(released, form, messages, n, prompt, &ids, &n_ids, &error) != DSMOE_OK ||
        dsmoe_tokenizer_decode(released, ids, n_ids, &text, &length, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_string_equal(text, expected);
    for (size_t i = 0; i < n_ids; i++) special += dsmoe_tokenizer_is_special(released, ids[i]);
    assert_int_equal(special, n_special);
    assert_int_equal(ids[0], BOS);
    free(ids);
    free(text);
}

static void test_chat(void **state)
{
    (void)state;
    const dsmoe_message messages[] = {{"system", "Be brief."},
                                      {"user", "Hi" EOS_TEXT},
                                      {"assistant", "Hello!"},
                                      {"user", "Who?"}};
    check_chat(messages, 4, true,
               BOS_TEXT "Be brief.\n\nUser: Hi" EOS_TEXT "\n\nAssistant: Hello!" EOS_TEXT
                        "User: Who?\n\nAssistant:",
               2);
    check_chat(messages, 3, false,
               BOS_TEXT "Be brief.\n\nUser: Hi" EOS_TEXT "\n\nAssistant: Hello!" EOS_TEXT, 2);
    check_chat(NULL, 0, false, BOS_TEXT, 1);

    /* Frame and content are encoded together: "Assistant: Hello" has the token " Hello". */
    int32_t *ids;
    size_t n_ids;
    const dsmoe_message answer = {"assistant", "Hello"};
    const dsmoe_chat_form *form = deepseek_form(released);
    assert_int_equal(dsmoe_chat_encode(released, form, &answer, 1, false, &ids, &n_ids, NULL),
                     DSMOE_OK);
    assert_int_equal(ids[n_ids - 1], EOS);
    assert_int_equal(ids[n_ids - 2], 37727);
    free(ids);
}

static void test_chat_refuses(void **state)
{
    (void)state;
    static const struct {
        dsmoe_message message;
        const char *named;
    } cases[] = {{{"tool", "x"}, "tool"},
                 {{"", "x"}, "role"},
                 {{NULL, "x"}, "role"},
                 {{"user", NULL}, "content"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t *ids;
        size_t n_ids;
        dsmoe_error error;
        const dsmoe_chat_form *form = deepseek_form(released);
        assert_int_equal(
            dsmoe_chat_encode(released, form, &cases[i].message, 1, true, &ids, &n_ids, &error),
            DSMOE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, cases[i].named));
        assert_null(ids);
    }
    dsmoe_tokenizer *small = parse_model("", "'vocab':{" LETTERS "},'merges':[]");
    const dsmoe_message answer = {"assistant", "a"};
    int32_t *ids;
    size_t n_ids;
    dsmoe_error error;
    const dsmoe_chat_form *form = deepseek_form(small);
    assert_int_equal(dsmoe_chat_encode(small, form, &answer, 1, true, &ids, &n_ids, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "EOS"));
    dsmoe_tokenizer_free(small);
}

static void test_utf8_complete(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t complete;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"abc\xc3", 3},
        {"abc\xc3\xb6", 5},
        {"\xe4", 0},
        {"\xe4\xbd", 0},
        {"\xe4\xbd\xa0", 3},
        {"x\xf0\x9f\x9a", 1},
        {"x\xf0\x9f\x9a\x80", 5},
        {"\x80\x80\x80", 3},         /* does not wait for more */
        {"\xff", 1},                 /* no character begins so */
        {"\xc0", 1},                 /* overlong: never complete */
        {"\xe0\x80", 2},             /* overlong, too */
        {"\xe0\xa0", 0},             /* this one may be completed */
        {"\xed\xa0", 2},             /* half a surrogate */
        {"\xf4\x90", 2},             /* above U+10FFFF */
        {"\xf0\x90\x80\x80\x80", 5}, /* one continuation too many */
        {"\xe4\xc3", 1},             /* the first is invalid, the second waits */
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(dsmoe_utf8_complete(cases[i].bytes, strlen(cases[i].bytes)),
                         cases[i].complete);
}

/* ---- small tokenizers ----------------------------------------------------------------------- */

static void test_byte_level_options(void **state)
{
    (void)state;
    static const char model[] = "'vocab':{" LETTERS ",'Ġa':4,'ab':5,'bc':6,'Ġab':7},"
                                "'merges':['Ġ a','Ġa b','a b','b c']";
    dsmoe_tokenizer *t = parse_model("'pre_tokenizer':{'type':'ByteLevel'},", model);
    check_text(t, "ab", "7"); /* a missing first space is added */
    check_text(t, " ab", "7");
    check_text(t, "ab  ab", "7 3 7"); /* split as GPT-2 does */
    dsmoe_tokenizer_free(t);
    t = parse_model(
        "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false},", model);
    check_text(t, "ab ab", "5 7");
    dsmoe_tokenizer_free(t);
}

static void test_bpe(void **state)
{
    (void)state;
    dsmoe_tokenizer *t = parse_model("", "'vocab':{" LETTERS ",'ab':4,'bc':5,'abc':6,'aa':7},"
                                         "'merges':['b c',['a','b'],'a bc','a a']");
    check_text(t, "ab", "4");
    check_text(t, "abc", "6");   /* bc is merged first */
    check_text(t, "aaa", "7 0"); /* from the left */
    check_text(t, "aaaa", "7 7");
    check_text(t, "abab", "4 4");
    check_text(t, "cab", "2 4");
    dsmoe_tokenizer_free(t);

    t = parse_model("",
                    "'vocab':{" LETTERS ",'ab':4,'abc':5},'merges':['a b'],'ignore_merges':true");
    check_text(t, "abc", "5");
    check_text(t, "abcc", "4 2 2");
    dsmoe_tokenizer_free(t);
}

static void test_unknown_bytes(void **state)
{
    (void)state;
    dsmoe_tokenizer *t =
        parse_model("", "'vocab':{" LETTERS ",'?':9},'merges':[],'unk_token':'?','dropout':0.0");
    check_text(t, "axxb", "0 9 9 1");
    assert_int_equal(dsmoe_tokenizer_size(t), 10); /* one id is unused */
    size_t length;
    assert_null(dsmoe_tokenizer_piece(t, 5, &length));
    dsmoe_tokenizer_free(t);
    t = parse_model("", "'vocab':{" LETTERS ",'?':4},'merges':[],'unk_token':'?','fuse_unk':true");
    check_text(t, "axxbx", "0 4 1 4");
    dsmoe_tokenizer_free(t);
    t = parse_model("", "'vocab':{" LETTERS ",'ï':4,'¿':5,'½':6,'ï¿':7},'merges':['ï ¿']");
    check_text(t, "axb", "0 7 6 1"); /* U+FFFD */
    dsmoe_tokenizer_free(t);
    t = parse_model("", "'vocab':{" LETTERS "},'merges':[]");
    int32_t *ids;
    size_t n_ids;
    dsmoe_error error;
    assert_int_equal(dsmoe_tokenizer_encode(t, "ax", 2, 0, &ids, &n_ids, &error),
                     DSMOE_ERROR_FORMAT);
    assert_string_equal(error.message, "tokenizer.json: the vocabulary has no token for byte 0x78");
    dsmoe_tokenizer_free(t);
}

static void test_added_tokens(void **state)
{
    (void)state;
    static const char model[] = "'vocab':{" LETTERS ",'bb':4},'merges':['b b']";
    dsmoe_tokenizer *t = parse_model("'normalizer':{'type':'Lowercase'},'added_tokens':["
                                     "{'id':10,'content':'ab'},{'id':11,'content':'abc'},"
                                     "{'id':12,'content':'<L>','lstrip':true,'special':true},"
                                     "{'id':13,'content':'<R>','rstrip':true,'normalized':false},"
                                     "{'id':14,'content':'cc','single_word':true},"
                                     "{'id':15,'content':'BOB'},{'id':4,'content':'bb'}],",
                                     model);
    assert_int_equal(dsmoe_tokenizer_size(t), 16);
    check_text(t, "aab", "0 10");
    check_text(t, "abcab", "11 10"); /* the longest one */
    check_ids(t, "a  <L> b", 8, DSMOE_ENCODE_SPECIAL, "0 12 3 1");
    check_text(t, "a <R>  b", "0 3 13 1");
    check_text(t, "cc", "14");
    check_text(t, "a cc b", "0 3 14 3 1");
    check_text(t, "acc", "0 2 2"); /* not a single word */
    check_text(t, "bob", "15");    /* both are normalised */
    check_text(t, "B bb", "1 3 4");
    dsmoe_tokenizer_free(t);
}

/* ---- which token begins a text --------------------------------------------------------------- */

static void test_begin_and_end(void **state)
{
    (void)state;
    static const char added[] = "'added_tokens':[{'id':7,'content':'<s>','special':true},"
                                "{'id':8,'content':'</s>','special':true}],";
    static const char model[] = "'model':{'vocab':{" LETTERS "},'merges':[]}";
    static const char bare[] = "'post_processor':{'type':'ByteLevel'},";
    static const char template[] =
        "'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel'},"
        "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}},"
        "{'Sequence':{'id':'A','type_id':0}}]}]},";
    static const struct {
        const char *post, *config;
        int32_t bos, eos;
        bool adds_bos;
    } cases[] = {
        {bare, NULL, 7, 8, false},
        {template, NULL, 7, 8, true},
        {bare, "{}", -1, -1, false},
        {bare, "{'bos_token':null,'add_bos_token':true}", -1, -1, false},
        {bare, "{'bos_token':'<s>','add_bos_token':true}", 7, -1, true},
        {bare, "{'bos_token':'a','eos_token':{'content':'</s>'}}", 0, 8, false},
        {template, "{'bos_token':'<s>','eos_token':'</s>'}", 7, 8, true},
        {template, "{'bos_token':'<s>','add_bos_token':false}", 7, -1, false},
        {template, "{'bos_token':'</s>','add_eos_token':true}", 8, -1, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json;
        assert_true(asprintf(&json, "{%s%s" PRE_NONE "%s}", added, cases[i].post, model) > 0);
        dsmoe_tokenizer *t = parse(json, cases[i].config);
        assert_int_equal(dsmoe_tokenizer_bos(t), cases[i].bos);
        assert_int_equal(dsmoe_tokenizer_eos(t), cases[i].eos);
        assert_int_equal(dsmoe_tokenizer_adds_bos(t), cases[i].adds_bos);
        check_ids(t, "a", 1, DSMOE_ENCODE_BOS, cases[i].adds_bos ? "7 0" : "0");
        dsmoe_tokenizer_free(t);
        free(json);
    }
}

static void test_open(void **state)
{
    (void)state;
    dsmoe_tokenizer *t;
    dsmoe_error error;
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/absent", &t, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/absent"));
    assert_null(t);
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/config", &t, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/config/tokenizer.json"));
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/tokenizer/cases.jsonl", &t, &error),
                     DSMOE_ERROR_FORMAT);
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/tokenizer/tokenizer.json", &t, &error),
                     DSMOE_OK);
    assert_int_equal(dsmoe_tokenizer_bos(t), BOS); /* recognised by its name */
    assert_int_equal(dsmoe_tokenizer_eos(t), EOS);
    assert_false(dsmoe_tokenizer_adds_bos(t));
    dsmoe_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_cases),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_look_alikes),
        cmocka_unit_test(test_letters_beside_the_byte_map),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_decode_refuses),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_chat_refuses),
        cmocka_unit_test(test_utf8_complete),
        cmocka_unit_test(test_byte_level_options),
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_unknown_bytes),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_begin_and_end),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, open_released, free_released);
}

/* test_tokenizer_hostile.c - malicious files and malicious texts: each must quickly give a one-line error
 * that names the file and the key, or the right ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tokenizer.h"
#include "text/unicode.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- helpers -------------------------------------------------------------------------------- */

/* JSON in C strings is easier to read with ' for ". */
static void quote(char *text)
{
    for (; *text; text++)
        if (*text == '\'') *text = '"';
}

static dsmoe_status parse(const char *json, const char *config, dsmoe_tokenizer **tokenizer,
                          dsmoe_error *error)
{
    char *text = strdup(json), *config_text = strdup(config ? config : "");
    assert_non_null(text);
    assert_non_null(config_text);
    quote(text);
    quote(config_text);
    tokenizer_text file = {text, strlen(text), "t.json"};
    tokenizer_text config_file = {config_text, strlen(config_text), "c.json"};
    dsmoe_status status = tokenizer_parse(&file, config ? &config_file : NULL, tokenizer, error);
    free(text);
    free(config_text);
    return status;
}

static void check_refused(const char *json, const char *config, const char *named)
{
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (parse(json, config, &tokenizer, &error) == DSMOE_OK) fail_msg("%.200s opens", json);
    assert_null(tokenizer);
    assert_int_equal(error.status, DSMOE_ERROR_FORMAT);
    if (!strstr(error.message, named))
        fail_msg("%.200s: \"%s\" does not say \"%s\"", json, error.message, named);
    assert_int_equal(strncmp(error.message, config ? "c.json: " : "t.json: ", 8), 0);
    assert_null(strchr(error.message, '\n'));
}

#define PRE "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define MODEL "'model':{'vocab':{'a':0,'b':1,'ab':2,'?':3},'merges':['a b']}"

/* A tokenizer file with this pre_tokenizer, before ByteLevel. */
static char *with_stage(const char *stage)
{
    char *json;
    assert_true(asprintf(&json,
                         "{'pre_tokenizer':{'type':'Sequence','pretokenizers':[%s,"
                         "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}]}," MODEL
                         "}",
                         stage) > 0);
    return json;
}

static char *with_regex(const char *expression)
{
    char *stage;
    assert_true(asprintf(&stage,
                         "{'type':'Split','pattern':{'Regex':'%s'},'behavior':'Isolated',"
                         "'invert':false}",
                         expression) > 0);
    char *json = with_stage(stage);
    free(stage);
    return json;
}

/* ---- malicious files ------------------------------------------------------------------------- */

static void test_top_level(void **state)
{
    (void)state;
    static const struct {
        const char *json, *named;
    } cases[] = {
        {"", "JSON"},
        {"{", "JSON"},
        {"[]", "object"},
        {"{}", "model"},
        {"{'model':{}}", "pre_tokenizer"},
        {"{'model':[]," PRE "}", "model must be an object"},
        {"{'model':null," PRE "}", "model is missing"},
        {"{" MODEL "}", "pre_tokenizer is missing"},
        {"{" MODEL ",'pre_tokenizer':null}", "pre_tokenizer is missing"},
        {"{" MODEL ",'pre_tokenizer':{}}", "type is missing"},
        {"{" MODEL ",'pre_tokenizer':{'type':7}}", "type must be a string"},
        {"{" MODEL ",'pre_tokenizer':{'type':'Metaspace'}}", "Metaspace"},
        {"{" MODEL ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[]}}", "no ByteLevel"},
        {"{" MODEL ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[7]}}", "pre_tokenizer"},
        {"{" MODEL ",'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'ByteLevel'},"
         "{'type':'Digits'}]}}",
         "Digits after ByteLevel"},
        {"{" MODEL "," PRE ",'normalizer':7}", "normalizer must be an object"},
        {"{" MODEL "," PRE ",'normalizer':{'type':'Nmt'}}", "Nmt"},
        {"{" MODEL "," PRE ",'normalizer':{'type':'Replace','content':'x'}}", "pattern is missing"},
        {"{" MODEL "," PRE ",'normalizer':{'type':'Prepend'}}", "prepend is missing"},
        {"{" MODEL "," PRE ",'added_tokens':{}}", "added_tokens must be an array"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) check_refused(cases[i].json, NULL, cases[i].named);
}

static void test_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *model, *named;
    } cases[] = {
        {"'type':'Unigram'", "Unigram"},
        {"'merges':[]", "vocab is missing"},
        {"'vocab':[],'merges':[]", "vocab must be an object"},
        {"'vocab':{},'merges':[]", "vocab is empty"},
        {"'vocab':{'a':0}", "merges is missing"},
        {"'vocab':{'a':'0'},'merges':[]", "must be an integer"},
        {"'vocab':{'a':0.0},'merges':[]", "must be an integer"},
        {"'vocab':{'':0},'merges':[]", "is empty"},
        {"'vocab':{'a':0,'a':1},'merges':[]", "duplicate"},
        {"'vocab':{'a':0,'b':0},'merges':[]", "id 0"},
        {"'vocab':{'a':-1},'merges':[]", "id -1"},
        {"'vocab':{'a':1048576},'merges':[]", "id 1048576"},
        {"'vocab':{'a':2147483647},'merges':[]", "id 2147483647"},
        {"'vocab':{'a':9223372036854775807},'merges':[]", "id 9223372036854775807"},
        {"'vocab':{'a':18446744073709551616},'merges':[]", "JSON"},
        {"'vocab':{'a':0},'merges':[],'dropout':0.1", "dropout"},
        {"'vocab':{'a':0},'merges':[],'byte_fallback':true", "byte_fallback"},
        {"'vocab':{'a':0},'merges':[],'byte_fallback':1", "byte_fallback"},
        {"'vocab':{'a':0},'merges':[],'end_of_word_suffix':'</w>'", "end_of_word_suffix"},
        {"'vocab':{'a':0},'merges':[],'unk_token':'x'", "unk_token"},
        {"'vocab':{'a':0},'merges':[],'ignore_merges':'no'", "ignore_merges"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json;
        assert_true(asprintf(&json, "{" PRE ",'model':{%s}}", cases[i].model) > 0);
        check_refused(json, NULL, cases[i].named);
        free(json);
    }
}

static void test_merges(void **state)
{
    (void)state;
    static const struct {
        const char *merges, *named;
    } cases[] = {
        {"{}", "merges must be an array"},
        {"[7]", "merges[0]"},
        {"['ab']", "\"ab\" must be two tokens"},
        {"['']", "must be two tokens"},
        {"['a b','a  b']", "merges[1]: \"a  b\" must be two tokens"},
        {"['a b ']", "must be two tokens"},
        {"[' b']", "token \"\""},
        {"['a ']", "token \"\""},
        {"['x b']", "token \"x\""},
        {"['a x']", "token \"x\""},
        {"['b a']", "not in the vocab"},
        {"['a b','a b']", "merges[1]: \"a b\" occurs twice"},
        {"[['a']]", "pair"},
        {"[['a','b','c']]", "pair"},
        {"[['a',1]]", "pair of strings"},
        {"[['a','']]", "token \"\""},
        {"[['a b','a']]", "token \"a b\""},
        {"['ab a','a ab','a b']", "not in the vocab"}, /* an endless cycle */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json;
        assert_true(asprintf(&json, "{" PRE ",'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':%s}}",
                             cases[i].merges) > 0);
        check_refused(json, NULL, cases[i].named);
        free(json);
    }
}

/* T05: a million merges. Letters merge to pairs, and a thousand pairs with each other. */
static void test_a_million_merges(void **state)
{
    (void)state;
    enum { LETTERS = 32, PAIRS = LETTERS * LETTERS, SIDE = 1000, SIZE = 32 << 20 };
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEF";
    char *json = malloc(SIZE), *at = json;
    assert_non_null(json);
    at += sprintf(at, "{'pre_tokenizer':{'type':'ByteLevel','use_regex':false,"
                      "'add_prefix_space':false},'model':{'type':'BPE','vocab':{'a':0");
    for (int i = 1; i < LETTERS; i++) at += sprintf(at, ",'%c':%d", letters[i], i);
#define PAIR(i) letters[(i) / LETTERS], letters[(i) % LETTERS]
    for (int i = 0; i < PAIRS; i++) at += sprintf(at, ",'%c%c':%d", PAIR(i), LETTERS + i);
    for (int i = 0; i < SIDE * SIDE; i++)
        at += sprintf(at, ",'%c%c%c%c':%d", PAIR(i / SIDE), PAIR(i % SIDE), LETTERS + PAIRS + i);
    at += sprintf(at, "},'merges':['a a'");
    for (int i = 1; i < PAIRS; i++) at += sprintf(at, ",'%c %c'", PAIR(i));
    for (int i = 0; i < SIDE * SIDE; i++)
        at += sprintf(at, ",'%c%c %c%c'", PAIR(i / SIDE), PAIR(i % SIDE));
#undef PAIR
    at += sprintf(at, "]}}");
    assert_true(at < json + SIZE);

    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (parse(json, NULL, &tokenizer, &error) != DSMOE_OK) fail_msg("%s", error.message);
    free(json);
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), LETTERS + PAIRS + SIDE * SIDE);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(dsmoe_tokenizer_encode(tokenizer, "aaabFa", 6, 0, &ids, &n_ids, NULL),
                     DSMOE_OK);
    assert_int_equal(n_ids, 2);
    assert_int_equal(ids[0], LETTERS + PAIRS + 1);        /* aa, ab: pairs 0 and 1 */
    assert_int_equal(ids[1], LETTERS + 31 * LETTERS + 0); /* Fa: not one of the first 1000 pairs */
    free(ids);
    dsmoe_tokenizer_free(tokenizer);
}

static void test_added_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *tokens, *named;
    } cases[] = {
        {"7", "added_tokens[0] must be an object"},
        {"{'id':9}", "added_tokens[0]: content is missing"},
        {"{'content':'x'}", "id is missing"},
        {"{'id':'9','content':'x'}", "id must be an integer"},
        {"{'id':9,'content':''}", "content has 0 bytes"},
        {"{'id':9,'content':7}", "content must be a string"},
        {"{'id':9,'content':'x','special':1}", "special"},
        {"{'id':-1,'content':'x'}", "id -1"},
        {"{'id':1048576,'content':'x'}", "id 1048576"},
        {"{'id':2147483647,'content':'x'}", "id 2147483647"},
        {"{'id':4294967296,'content':'x'}", "id 4294967296"},
        {"{'id':0,'content':'x'}", "id 0"},                               /* already used */
        {"{'id':9,'content':'ab'}", "but id 2 in the vocabulary"},        /* two ids */
        {"{'id':9,'content':'x'},{'id':9,'content':'y'}", "id 9"},        /* one id for two */
        {"{'id':9,'content':'x'},{'id':10,'content':'x'}", "occurs twice"} /* two ids for one */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json;
        assert_true(asprintf(&json, "{" PRE "," MODEL ",'added_tokens':[%s]}", cases[i].tokens) >
                    0);
        check_refused(json, NULL, cases[i].named);
        free(json);
    }
    /* Ids above the vocabulary, with a gap, are allowed. */
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (parse("{" PRE "," MODEL ",'added_tokens':[{'id':9,'content':'x'},{'id':2,'content':'ab'}]}",
              NULL, &tokenizer, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), 10);
    dsmoe_tokenizer_free(tokenizer);
}

static void test_configs(void **state)
{
    (void)state;
    static const struct {
        const char *config, *named;
    } cases[] = {
        {"", "JSON"},
        {"[]", "object"},
        {"{'bos_token':'x'}", "bos_token \"x\" is not a token of t.json"},
        {"{'eos_token':{'content':'x'}}", "eos_token"},
        {"{'eos_token':{}}", "eos_token: content is missing"},
        {"{'eos_token':{'content':1}}", "content must be a string"},
        {"{'bos_token':100000}", "bos_token must be a string or an object"},
        {"{'bos_token':''}", "bos_token"},
        {"{'add_bos_token':'yes'}", "add_bos_token"},
        {"{'add_eos_token':1}", "add_eos_token"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_refused("{" PRE "," MODEL "}", cases[i].config, cases[i].named);
}

static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *named;
    } cases[] = {
        {"", "empty"},
        {"a(?R)?b", "(? group"},
        {"(?1)(a)", "(? group"},
        {"(a)\\\\1", "back"},
        {"(?<n>a)\\\\g<n>", "(?"},
        {"(?&n)", "(? group"},
        {"\\\\C", "\\C"},
        {"(*ACCEPT)", "(*"},
        {"(?(1)a)", "(? group"},
        {"(?C1)a", "(? group"},
        {"a{1,2}+", "repetition"},
        {"[a&&b]", "intersection"},
        {"[a[b]]", "class"},
        {"[a", "without an end"},
        {"(a", "parenthes"},
        {"a**b\\\\", "backslash"},
        {"\\\\xff", "single byte"},
        {"\\\\p{Nonsense}", "property"},
        {"\\\\pL", "\\p"},
        {"\\\\Qa\\\\E", "\\Q"},
        {"a(?i)b", "(? group"},
        {"(?#a)", "(? group"},
        {"\\\\x{110000}", "pattern"},
        {"\\\\u12", "escape"},
        {"\\\\p{L", "\\p"},
        {"(((((((a{1,999}){1,999}){1,999}){1,999})))))", "pattern"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json = with_regex(cases[i].pattern);
        check_refused(json, NULL, cases[i].named);
        free(json);
    }
}

static void test_long_pattern(void **state)
{
    (void)state;
    char *text = malloc(65537);
    assert_non_null(text);
    memset(text, 'a', 65536);
    text[65536] = '\0';
    char *json = with_regex(text);
    check_refused(json, NULL, "65536 bytes");
    free(json);
    memset(text, '(', 4096);
    text[4096] = '\0';
    json = with_regex(text);
    check_refused(json, NULL, "pattern");
    free(json);
    free(text);
}

static void test_splits(void **state)
{
    (void)state;
    static const struct {
        const char *stage, *named;
    } cases[] = {
        {"{'type':'Split'}", "behavior is missing"},
        {"{'type':'Split','behavior':'Isolated'}", "pattern is missing"},
        {"{'type':'Split','behavior':'Sideways','pattern':{'String':'a'}}", "Sideways"},
        {"{'type':'Split','behavior':'Isolated','pattern':'a'}", "pattern must be an object"},
        {"{'type':'Split','behavior':'Isolated','pattern':{}}", "one of String and Regex"},
        {"{'type':'Split','behavior':'Isolated','pattern':{'String':'a','Regex':'a'}}", "one of"},
        {"{'type':'Split','behavior':'Isolated','pattern':{'String':''}}", "empty"},
        {"{'type':'Split','behavior':'Isolated','pattern':{'Regex':7}}", "Regex must be a string"},
        {"{'type':'Split','behavior':'Isolated','invert':0,'pattern':{'String':'a'}}", "invert"},
        {"{'type':'Digits','individual_digits':'yes'}", "individual_digits"},
        {"{'type':'Sequence'}", "pretokenizers is missing"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *json = with_stage(cases[i].stage);
        check_refused(json, NULL, cases[i].named);
        free(json);
    }
}

/* `count` times `open`, then `middle`, then `count` times `close`. */
static char *nested(const char *open, const char *middle, const char *close, size_t count)
{
    size_t size = count * (strlen(open) + strlen(close)) + strlen(middle) + 1;
    char *text = malloc(size), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) at = stpcpy(at, open);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < count; i++) at = stpcpy(at, close);
    return text;
}

static void test_deep_and_wide_sequences(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        const char *open, *middle, *named;
    } cases[] = {
        {10000, "{'type':'Sequence','pretokenizers':[", "{'type':'Digits'}", "deeper"},
        {1000, "{'type':'Digits'},", "{'type':'Digits'}", "stages"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *stage = nested(cases[i].open, cases[i].middle, i == 0 ? "]}" : "", cases[i].count);
        char *json = with_stage(stage);
        check_refused(json, NULL, cases[i].named);
        free(json);
        free(stage);
    }
    char *steps = nested("{'type':'NFC'},", "{'type':'NFC'}", "", 1000), *json;
    assert_true(asprintf(&json,
                         "{" PRE "," MODEL ",'normalizer':{'type':'Sequence','normalizers':[%s]}}",
                         steps) > 0);
    check_refused(json, NULL, "steps");
    free(json);
    free(steps);
}

/* ---- malicious texts ------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void test_exploding_pattern(void **state)
{
    (void)state;
    char *json = with_regex("(a+)+$");
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    assert_int_equal(parse(json, NULL, &tokenizer, &error), DSMOE_OK);
    char text[1001];
    memset(text, 'a', 1000);
    text[1000] = 'b';
    int32_t *ids;
    size_t n_ids;
    double start = seconds();
    assert_int_equal(dsmoe_tokenizer_encode(tokenizer, text, sizeof text, 0, &ids, &n_ids, &error),
                     DSMOE_ERROR_FORMAT);
    assert_true(seconds() - start < 5);
    assert_null(ids);
    assert_non_null(strstr(error.message, "t.json: "));
    assert_non_null(strstr(error.message, "(a+)+$"));
    dsmoe_tokenizer_free(tokenizer);
    free(json);
}

static void test_exploding_normalizer(void **state)
{
    (void)state;
    char *steps = nested("{'type':'Replace','pattern':{'String':'a'},'content':'aaaa'},",
                         "{'type':'NFC'}", "", 60);
    char *json;
    assert_true(asprintf(&json,
                         "{" PRE "," MODEL ",'normalizer':{'type':'Sequence','normalizers':[%s]}}",
                         steps) > 0);
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    assert_int_equal(parse(json, NULL, &tokenizer, &error), DSMOE_OK);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(dsmoe_tokenizer_encode(tokenizer, "aaa", 3, 0, &ids, &n_ids, &error),
                     DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "normalizer"));
    dsmoe_tokenizer_free(tokenizer);
    free(json);
    free(steps);
}

/* Marks of different classes in a row must be reordered; the sorting must not take quadratic time. */
static void test_marks_to_sort(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(4 * N);
    assert_non_null(text);
    for (int i = 0; i < N; i++) memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4); /* above, below */
    byte_buffer out = {0};
    double start = seconds();
    assert_int_equal(unicode_normalize(UNICODE_NFD, text, 4 * N, &out, NULL), DSMOE_OK);
    assert_true(seconds() - start < 5);
    assert_int_equal(out.length, 4 * N);
    assert_memory_equal(out.bytes, "\xcc\xa3\xcc\xa3", 4);
    assert_memory_equal(out.bytes + 4 * N - 4, "\xcc\x81\xcc\x81", 4);
    byte_buffer_free(&out);
    free(text);
}

static void check_long_text(const dsmoe_tokenizer *tokenizer, const char *unit, size_t count,
                            const char *end)
{
    char *text = nested(unit, end, "", count);
    size_t length = strlen(text), n_ids, back_length = 0;
    int32_t *ids;
    char *back = NULL;
    dsmoe_error error;
    double start = seconds();
    if (dsmoe_tokenizer_encode(tokenizer, text, length, 0, &ids, &n_ids, &error) != DSMOE_OK ||
        dsmoe_tokenizer_decode(tokenizer, ids, n_ids, &back, &back_length, &error) != DSMOE_OK)
        fail_msg("%zu x \"%s\": %s", count, unit, error.message);
    if (seconds() - start > 10) fail_msg("%zu x \"%s\" takes too long", count, unit);
    assert_int_equal(back_length, length);
    assert_memory_equal(back, text, length);
    free(ids);
    free(back);
    free(text);
}

static void test_long_texts(void **state)
{
    (void)state;
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(TEST_DATA "/tokenizer", &tokenizer, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    check_long_text(tokenizer, "Z", 131072, "");
    check_long_text(tokenizer, "A", 43000, "");
    check_long_text(tokenizer, "a", 1 << 20, "");
    check_long_text(tokenizer, "\n", 1 << 20, "");
    check_long_text(tokenizer, " \n", 60000, "");
    check_long_text(tokenizer, " ", 1 << 20, "1"); /* spaces without a line end after them */
    check_long_text(tokenizer, "\xcc\x81", 100000, "");
    check_long_text(tokenizer, "ö", 100000, "");
    check_long_text(tokenizer, "<｜begin▁of▁sentence｜", 20000, "");
    check_long_text(tokenizer, "\x80\xbf", 100000, "");
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(
        dsmoe_tokenizer_encode(tokenizer, "", (size_t)1 << 31, 0, &ids, &n_ids, &error),
        DSMOE_ERROR_ARGUMENT); /* without looking at the text */
    dsmoe_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_level),
        cmocka_unit_test(test_vocabularies),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_a_million_merges),
        cmocka_unit_test(test_long_pattern),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_deep_and_wide_sequences),
        cmocka_unit_test(test_exploding_pattern),
        cmocka_unit_test(test_exploding_normalizer),
        cmocka_unit_test(test_marks_to_sort),
        cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_text.c - the parts of src/text separately: byte alphabet, pre-tokenizer, normalizer, patterns. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/byte_map.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

static void test_byte_map(void **state)
{
    (void)state;
    bool seen[256] = {false};
    int n = 0;
    for (uint32_t code = 0; code < 0x400; code++) {
        int byte = byte_map_byte(code);
        if (byte < 0) continue;
        assert_false(seen[byte]);
        seen[byte] = true;
        n++;
    }
    assert_int_equal(n, 256);
    assert_int_equal(byte_map_byte(0x120), ' ');
    assert_int_equal(byte_map_byte(0x10a), '\n');
    assert_int_equal(byte_map_byte(0xf6), 0xf6);
    assert_int_equal(byte_map_byte(0x143), 0xad);
    char bytes[8];
    size_t length;
    assert_true(byte_map_decode("ĠÃ¶", 6, bytes, &length));
    assert_int_equal(length, 3);
    assert_memory_equal(bytes, " ö", 3);
    assert_false(byte_map_decode("a b", 3, bytes, &length));
    assert_false(byte_map_decode("｜", 3, bytes, &length));
}

static dsmoe_status append_piece(void *context, const char *piece, size_t length,
                                 dsmoe_error *error)
{
    byte_buffer *pieces = context;
    if (pieces->length) STATUS_TRY(byte_buffer_append(pieces, "|", 1, error));
    return byte_buffer_append(pieces, piece, length, error);
}

/* `expected` has the pieces, joined by bars. */
static void check_pieces(const char *stages, const char *text, const char *expected)
{
    char *json, *quotes;
    assert_true(asprintf(&json,
                         "{'type':'Sequence','pretokenizers':[%s{'type':'ByteLevel',"
                         "'add_prefix_space':false,'use_regex':false}]}",
                         stages) > 0);
    quotes = quoted(json);
    json_node *node;
    dsmoe_error error;
    pre_tokenizer pre = {0};
    regex_scratch *scratch;
    byte_buffer pieces = {0};
    assert_int_equal(json_node_parse(quotes, strlen(quotes), "test", &node, NULL), DSMOE_OK);
    assert_int_equal(regex_scratch_create(&scratch, NULL), DSMOE_OK);
    if (pre_tokenizer_read(&pre, node, &error) != DSMOE_OK ||
        pre_tokenizer_run(&pre, scratch, text, strlen(text), append_piece, &pieces, &error) !=
            DSMOE_OK)
        fail_msg("%s: %s", stages, error.message);
    assert_int_equal(byte_buffer_append(&pieces, "", 1, NULL), DSMOE_OK);
    if (strcmp(pieces.bytes, expected))
        fail_msg("%s: \"%s\" instead of \"%s\"", stages, pieces.bytes, expected);
    byte_buffer_free(&pieces);
    pre_tokenizer_free(&pre);
    regex_scratch_free(scratch);
    json_node_free(node);
    free(quotes);
    free(json);
}

#define SPLIT(pattern, behavior, invert)                                                           \
    "{'type':'Split','pattern':" pattern ",'behavior':'" behavior "','invert':" invert "},"

static void test_split_behaviors(void **state)
{
    (void)state;
    static const char text[] = "the-final--countdown";
    static const struct {
        const char *stage, *expected;
    } cases[] = {
        {SPLIT("{'String':'-'}", "Removed", "false"), "the|final|countdown"},
        {SPLIT("{'String':'-'}", "Isolated", "false"), "the|-|final|-|-|countdown"},
        {SPLIT("{'String':'-'}", "MergedWithPrevious", "false"), "the-|final-|-|countdown"},
        {SPLIT("{'String':'-'}", "MergedWithNext", "false"), "the|-final|-|-countdown"},
        {SPLIT("{'String':'-'}", "Contiguous", "false"), "the|-|final|--|countdown"},
        {SPLIT("{'Regex':'-'}", "Removed", "true"), "-|-|-"},
        {SPLIT("{'Regex':'[a-z]+'}", "Removed", "true"), "the|final|countdown"},
        {SPLIT("{'Regex':'[a-z]+'}", "MergedWithPrevious", "true"), "the-|final--|countdown"},
        {SPLIT("{'Regex':'(?=-)'}", "Isolated", "false"), "the|-final|-|-countdown"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) check_pieces(cases[i].stage, text, cases[i].expected);
}

static void test_pre_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *stages, *text, *expected;
    } cases[] = {
        {"", "any text", "any text"},
        {"{'type':'Digits','individual_digits':true},", "a12½Ⅷ٣b", "a|1|2|½|Ⅷ|٣|b"},
        {"{'type':'Digits','individual_digits':false},", "a12½b3", "a|12½|b|3"},
        {"{'type':'Digits'},{'type':'Sequence','pretokenizers':[]},", "1a", "1|a"},
        {SPLIT("{'Regex':'\\\\s+$'}", "Isolated", "false"), "a  \n  b  ", "a|  |\n  b|  "},
        {SPLIT("{'Regex':'^b'}", "Isolated", "false"), "b\nb", "b|\n|b"},
        {SPLIT("{'Regex':'.+'}", "Isolated", "false"), "ab\r\nc", "ab\r|\n|c"},
        {SPLIT("{'Regex':'\\\\p{L}+|\\\\p{N}'}", "Isolated", "false"), "Äb12,", "Äb|1|2|,"},
        {SPLIT("{'Regex':'\\\\d'}", "Removed", "false"), "a٣b", "a|b"},
        {SPLIT("{'Regex':'b'}", "Removed", "false"), "b", ""},
        {SPLIT("{'Regex':'x'}", "Isolated", "false"), "axb\x80xc", "a|x|b|\x80|x|c"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_pieces(cases[i].stages, cases[i].text, cases[i].expected);
}

static void check_normalized(const char *json, const char *text, const char *expected)
{
    char *quotes = quoted(json);
    json_node *node;
    dsmoe_error error;
    normalizer n = {0};
    regex_scratch *scratch;
    byte_buffer out = {0};
    assert_int_equal(json_node_parse(quotes, strlen(quotes), "test", &node, NULL), DSMOE_OK);
    assert_int_equal(regex_scratch_create(&scratch, NULL), DSMOE_OK);
    if (normalizer_read(&n, node, &error) != DSMOE_OK ||
        normalizer_run(&n, scratch, text, strlen(text), &out, &error) != DSMOE_OK)
        fail_msg("%s: %s", json, error.message);
    assert_int_equal(byte_buffer_append(&out, "", 1, NULL), DSMOE_OK);
    if (strcmp(out.bytes, expected))
        fail_msg("%s: \"%s\" instead of \"%s\"", json, out.bytes, expected);
    byte_buffer_free(&out);
    normalizer_free(&n);
    regex_scratch_free(scratch);
    json_node_free(node);
    free(quotes);
}

static void test_normalizers(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text, *expected;
    } cases[] = {
        {"{'type':'NFC'}", "o\u0308 \ufb01 \u1100\u1161", "ö \ufb01 \uac00"},
        {"{'type':'NFD'}", "ö \uac00", "o\u0308 \u1100\u1161"},
        {"{'type':'NFKC'}", "\ufb01 o\u0308 ２", "fi ö 2"},
        {"{'type':'NFKD'}", "\ufb01ö", "fio\u0308"},
        {"{'type':'NFC'}", "a\u0301\u0323", "\u1ea1\u0301"}, /* the marks are reordered */
        {"{'type':'Lowercase'}", "ÄB\u0130Σ1", "äbi\u0307σ1"},
        {"{'type':'Strip'}", " \t\u3000a b\n ", "a b"},
        {"{'type':'Strip','strip_left':false}", " a ", " a"},
        {"{'type':'Strip','strip_right':false}", "  ", ""},
        {"{'type':'StripAccents'}", "o\u0308a\u0301", "oa"},
        {"{'type':'Replace','pattern':{'String':'ab'},'content':'x'}", "abaab", "xax"},
        {"{'type':'Replace','pattern':{'Regex':' +'},'content':'_'}", "a  b c", "a_b_c"},
        {"{'type':'Replace','pattern':{'Regex':'x*'},'content':'-'}", "axb", "-a-b-"},
        {"{'type':'Prepend','prepend':'>'}", "a", ">a"},
        {"{'type':'Prepend','prepend':'>'}", "", ""},
        {"{'type':'Sequence','normalizers':[]}", "A ", "A "},
        {"{'type':'Sequence','normalizers':[{'type':'Lowercase'},{'type':'Sequence',"
         "'normalizers':[{'type':'Strip'},{'type':'Prepend','prepend':'_'}]}]}",
         " A ", "_a"},
        {"{'type':'Lowercase'}", "A\xff\x80 B", "a\xff\x80 b"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_normalized(cases[i].json, cases[i].text, cases[i].expected);
}

/* Patterns that the two engines would read differently. */
static void test_regex_translation(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *expected;
    } cases[] = {
        {"\\s?[\\s\\d]+", "\\p{White_Space}?[\\p{White_Space}\\d]+"},
        {"\\S\\h[\\h]\\v", "\\P{White_Space}[0-9A-Fa-f][0-9A-Fa-f]\\x{0b}"},
        {"\\u00e4\\x41\\x{1F600}", "\\x{00e4}\\x{41}\\x{1F600}"},
        {"(?i:'s)(?m:.)(?!a)(?<=b)", "(?i:'s)(?s:.)(?!a)(?<=b)"},
        {"(?i)a", "(?i)a"},
        {"a{,3}b{2}", "a{0,3}b{2}"},
        {"[]a][^]b]", "[\\]a][^\\]b]"},
        {"\\p{L}+[\\P{N}[:alpha:]]", "\\p{L}+[\\P{N}[:alpha:]]"},
        {"\\s+$", "(?<!\\p{White_Space})\\p{White_Space}+$"},
        {"\\[\\]\\ä[\\[\\]]", "\\[\\]\\ä[\\[\\]]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        byte_buffer out = {0};
        dsmoe_error error;
        if (regex_translate(cases[i].pattern, strlen(cases[i].pattern), &out, &error) != DSMOE_OK)
            fail_msg("%s: %s", cases[i].pattern, error.message);
        assert_int_equal(byte_buffer_append(&out, "", 1, NULL), DSMOE_OK);
        assert_string_equal(out.bytes, cases[i].expected);
        byte_buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_map),          cmocka_unit_test(test_split_behaviors),
        cmocka_unit_test(test_pre_tokenizers),    cmocka_unit_test(test_normalizers),
        cmocka_unit_test(test_regex_translation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

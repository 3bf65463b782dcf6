/* test_round_trip.c - a folder converted to a GGUF file and back: the same weights bit by bit, and the
 * same members in every JSON file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversions.h"
#include "formats/json.h"
#include "made_model.h"
#include "scratch.h"
#include "support.h"
#include "text/gguf_pre_tokenizer.h"
#include "tiny_run.h"

/* ---- members --------------------------------------------------------------------------------- */

typedef struct comparison {
    const json_node *other;
    const char *name, *except;
} comparison;

static dsmoe_status compare_member(void *context, const char *key, const json_node *value,
                                   dsmoe_error *error)
{
    (void)error;
    const comparison *c = context;
    if (c->except && !strcmp(key, c->except)) return DSMOE_OK;
    const json_node *other = json_node_member(c->other, key);
    if (!other) fail_msg("%s: \"%s\" is in one of both only", c->name, key);
    if (!json_node_same(value, other)) fail_msg("%s: \"%s\" has another value", c->name, key);
    return DSMOE_OK;
}

static json_node *read_json(const char *folder, const char *name)
{
    json_node *node;
    dsmoe_error error = {0};
    must(json_node_read(tiny_path(in(folder), name), (size_t)8 << 20, &node, &error), &error, name);
    return node;
}

/* Compares all members except one in the files of that name in "a" and "c". */
static void assert_same_json(const char *name, const char *except)
{
    json_node *before = read_json("a", name), *after = read_json("c", name);
    json_node_each(before, compare_member, &(comparison){after, name, except}, NULL);
    json_node_each(after, compare_member, &(comparison){before, name, except}, NULL);
    json_node_free(before);
    json_node_free(after);
}

/* ---- a folder -------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const char *text)
{
    write_to(tiny_path(in(folder), name), text, strlen(text));
}

/* A copy with `from`, which must occur, replaced by `to`; to be freed. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("there is no %s", from);
    char *copy;
    assert_true(asprintf(&copy, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return copy;
}

/* The released configuration with small sizes, to be freed. */
static char *config_text(bool few_tokens)
{
    static const char *const sizes[][2] = {
        {"\"hidden_size\": 2048", "\"hidden_size\": 32"},
        {"\"intermediate_size\": 10944", "\"intermediate_size\": 64"},
        {"\"moe_intermediate_size\": 1408", "\"moe_intermediate_size\": 16"},
        {"\"num_hidden_layers\": 28", "\"num_hidden_layers\": 2"},
        {"\"n_routed_experts\": 64", "\"n_routed_experts\": 8"},
        {"\"vocab_size\": 102400", "\"vocab_size\": 64"},
        {"\"bos_token_id\": 100000", "\"bos_token_id\": 4"},
        {"\"eos_token_id\": 100001", "\"eos_token_id\": 5"},
    };
    size_t size, n = few_tokens ? COUNT(sizes) : COUNT(sizes) - 3;
    char *text = tiny_read(TEST_DATA "/config/deepseek-moe-16b.json", &size);
    for (size_t i = 0; i < n; i++) {
        char *next = replaced(text, sizes[i][0], sizes[i][1]);
        free(text);
        text = next;
    }
    return text;
}

/* Like the released tokenizer, but with few tokens and so quick to read. */
static void write_small_tokenizer(const char *from, const char *to)
{
    static const char form[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": ["
        "{\"id\": 4, \"content\": \"<｜begin▁of▁sentence｜>\", \"single_word\": false,"
        " \"lstrip\": false, \"rstrip\": false, \"normalized\": true, \"special\": true},"
        "{\"id\": 5, \"content\": \"<｜end▁of▁sentence｜>\", \"single_word\": false,"
        " \"lstrip\": false, \"rstrip\": false, \"normalized\": true, \"special\": true},"
        "{\"id\": 6, \"content\": \"<x>\", \"single_word\": false, \"lstrip\": false,"
        " \"rstrip\": false, \"normalized\": true, \"special\": false}],"
        " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}, \"pre_tokenizer\": %s,"
        " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true,"
        " \"trim_offsets\": false, \"use_regex\": true}, \"decoder\": {\"type\": \"ByteLevel\","
        " \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},"
        " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,"
        " \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,"
        " \"fuse_unk\": false, \"byte_fallback\": false,"
        " \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"c\": 3}, \"merges\": [\"a b\"]}}";
    char *text, *changed;
    assert_true(asprintf(&text, form, gguf_pre_tokenizers[0].json) > 0);
    changed = replaced(text, from, to);
    write_file("a", "tokenizer.json", changed);
    free(text);
    free(changed);
}

/* Makes a model "a" with all files of the released one, but small. */
static void make_folder(bool few_tokens)
{
    char *text = config_text(few_tokens);
    dsmoe_config config;
    dsmoe_error error = {0};
    write_file(".", "config", text);
    must(dsmoe_config_read(in("config"), &config, &error), &error, "config");
    init(in("a"), &config, DSMOE_BF16);
    write_file("a", "config.json", text);
    free(text);
    write_file("a", "generation_config.json",
               "{\"bos_token_id\": 4, \"eos_token_id\": [5, 7], \"do_sample\": true,"
               " \"temperature\": 0.7, \"top_p\": 0.95, \"mine\": {\"a\": [1, 2.5, null]}}");
    copy_file(TEST_DATA "/tokenizer/tokenizer.json", in("a/tokenizer.json"));
    copy_file(TEST_DATA "/tokenizer/tokenizer_config.json", in("a/tokenizer_config.json"));
}

static void there_and_back(void)
{
    convert(in("a"), in("b.gguf"), NULL);
    convert(in("b.gguf"), in("c"), NULL);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_released(void **state)
{
    (void)state;
    make_folder(false);
    there_and_back();
    tiny_assert_same(in("a/model.safetensors"), in("c/model.safetensors"));
    assert_same_json("config.json", "auto_map"); /* it names code outside the folder */
    assert_same_json("generation_config.json", NULL);
    assert_same_json("tokenizer.json", NULL);
    assert_same_json("tokenizer_config.json", NULL);
}

/* Members of a tokenizer.json that GGUF keys cannot express. */
static void test_tokenizer_members(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"", ""},
        {"\"truncation\": null", "\"truncation\": {\"max_length\": 9}"},
        {"\"normalized\": true", "\"normalized\": false"},
        {"\"dropout\": null", "\"dropout\": 0"},
        {"\"version\": \"1.0\"", "\"version\": \"1.0\", \"mine\": 1"},
        {"\"trim_offsets\": false", "\"trim_offsets\": true"}, /* in the post_processor */
        {"\"a b\"", "[\"a\", \"b\"]"},
        {"\"id\": 4", "\"id\": 9"}, /* out of order */
        {", \"padding\": null", ""},
        {"\"normalizers\": []", "\"normalizers\": [{\"type\": \"NFC\"}]"},
        {"\"id\": 6, \"content\": \"<x>\"", "\"id\": 2, \"content\": \"ab\""},
    };
    make_folder(true);
    for (size_t i = 0; i < COUNT(changes); i++) {
        write_small_tokenizer(changes[i][0], changes[i][1]);
        there_and_back();
        assert_same_json("tokenizer.json", NULL);
        assert_same_json("tokenizer_config.json", NULL);
        tiny_remove(in("b.gguf"));
        tiny_remove(in("c"));
    }
}

/* tokenizer_config.json with any content, and without the file. */
static void test_tokenizer_config(void **state)
{
    (void)state;
    make_folder(true);
    write_small_tokenizer("", "");
    write_file("a", "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656, \"mine\": {\"a\": [true]},"
               " \"add_bos_token\": true, \"bos_token\": \"<｜begin▁of▁sentence｜>\","
               " \"chat_template\": \"{{ 'a' }}\\n\", \"tokenizer_class\": \"Mine\"}\n");
    there_and_back();
    tiny_assert_same(in("a/tokenizer_config.json"), in("c/tokenizer_config.json"));
    tiny_remove(in("b.gguf"));
    tiny_remove(in("c"));
    tiny_remove(in("a/tokenizer_config.json"));
    there_and_back();
    assert_same_json("tokenizer.json", NULL);
    assert_false(tiny_exists(in("c/tokenizer_config.json")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_released),
        TEST(test_tokenizer_members),
        TEST(test_tokenizer_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

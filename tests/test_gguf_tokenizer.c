/* test_gguf_tokenizer.c - tokenizers in GGUF files: the released one there and back, one that the keys
 * cannot express, and metadata that are not what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "scratch.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define BOS_TEXT "<｜begin▁of▁sentence｜>"

/* ---- helpers ------------------------------------------------------------------------------- */

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) fail_msg("%s", error->message);
}

static gguf_writer *begin_file(void)
{
    dsmoe_error error;
    gguf_writer *writer;
    remove(path);
    must(gguf_writer_create(path, &writer, &error), &error);
    return writer;
}

static void end_file(gguf_writer *writer)
{
    dsmoe_error error;
    must(gguf_writer_finish(writer, &error), &error);
}

static void write_tokenizer(const char *from, int64_t vocab_size)
{
    dsmoe_error error;
    gguf_writer *writer = begin_file();
    must(gguf_tokenizer_write(from, vocab_size, writer, &error), &error);
    end_file(writer);
}

static dsmoe_tokenizer *open_tokenizer(const char *from)
{
    dsmoe_error error;
    dsmoe_tokenizer *tokenizer;
    must(dsmoe_tokenizer_open(from, &tokenizer, &error), &error);
    return tokenizer;
}

static bool has_json(void)
{
    dsmoe_error error;
    gguf *file;
    gguf_string json;
    bool found;
    must(gguf_open(path, &file, &error), &error);
    must(gguf_get_string(file, "tokenizer.huggingface.json", &json, &found, &error), &error);
    gguf_close(file);
    return found;
}

static void check_text(const dsmoe_tokenizer *a, const dsmoe_tokenizer *b, const char *text,
                       size_t length)
{
    for (int flags = 0; flags < 4; flags++) {
        int32_t *ids[2];
        size_t n_ids[2];
        assert_int_equal(dsmoe_tokenizer_encode(a, text, length, flags, &ids[0], &n_ids[0], NULL),
                         DSMOE_OK);
        assert_int_equal(dsmoe_tokenizer_encode(b, text, length, flags, &ids[1], &n_ids[1], NULL),
                         DSMOE_OK);
        assert_int_equal(n_ids[0], n_ids[1]);
        assert_memory_equal(ids[0], ids[1], n_ids[0] * sizeof **ids);
        free(ids[0]);
        free(ids[1]);
    }
}

/* Every token, and what begins and ends a text. */
static void check_same(const dsmoe_tokenizer *a, const dsmoe_tokenizer *b)
{
    assert_int_equal(dsmoe_tokenizer_size(a), dsmoe_tokenizer_size(b));
    assert_int_equal(dsmoe_tokenizer_bos(a), dsmoe_tokenizer_bos(b));
    assert_int_equal(dsmoe_tokenizer_eos(a), dsmoe_tokenizer_eos(b));
    assert_int_equal(dsmoe_tokenizer_adds_bos(a), dsmoe_tokenizer_adds_bos(b));
    for (int32_t id = 0; id < dsmoe_tokenizer_size(a); id++) {
        size_t lengths[2] = {0};
        const char *left = dsmoe_tokenizer_piece(a, id, &lengths[0]);
        const char *right = dsmoe_tokenizer_piece(b, id, &lengths[1]);
        assert_int_equal(left == NULL, right == NULL);
        assert_int_equal(lengths[0], lengths[1]);
        if (left) assert_memory_equal(left, right, lengths[0]);
        assert_int_equal(dsmoe_tokenizer_is_special(a, id), dsmoe_tokenizer_is_special(b, id));
    }
}

/* ---- there and back ------------------------------------------------------------------------ */

static void test_released(void **state)
{
    (void)state;
    write_tokenizer(TEST_DATA "/tokenizer", 102400);
    assert_false(has_json());
    dsmoe_tokenizer *released = open_tokenizer(TEST_DATA "/tokenizer"), *t = open_tokenizer(path);
    check_same(t, released);
    assert_int_equal(dsmoe_tokenizer_size(t), 100015); /* the others are the model's alone */
    FILE *file = fopen(TEST_DATA "/tokenizer/cases.jsonl", "r");
    assert_non_null(file);
    char *line = NULL;
    size_t capacity = 0, text_length;
    ssize_t length;
    int n = 0;
    for (; (length = getline(&line, &capacity, file)) > 0; n++) {
        json_node *node;
        assert_int_equal(json_node_parse(line, (size_t)length, "case", &node, NULL), DSMOE_OK);
        const char *text = json_node_string(json_node_member(node, "text"), &text_length);
        check_text(t, released, text, text_length);
        json_node_free(node);
    }
    assert_true(n > 100);
    free(line);
    fclose(file);
    static const char bytes[] = "sch\xc3\xb6n \xf8\x00\xff \xed\xa0\x80 \xef\xbb\xbf " BOS_TEXT;
    check_text(t, released, bytes, sizeof bytes - 1);
    dsmoe_tokenizer_free(t);
    dsmoe_tokenizer_free(released);
}

static void check_id(const dsmoe_tokenizer *t, const char *text, int flags, int32_t id)
{
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(dsmoe_tokenizer_encode(t, text, strlen(text), flags, &ids, &n_ids, NULL),
                     DSMOE_OK);
    bool found = false;
    for (size_t i = 0; i < n_ids; i++) found = found || ids[i] == id;
    assert_int_equal(found, true);
    free(ids);
}

/* Text that looks like a special token is text unless asked for; letters beside the byte map. */
static void test_added_tokens(void **state)
{
    (void)state;
    write_tokenizer(TEST_DATA "/tokenizer", 102400);
    dsmoe_tokenizer *t = open_tokenizer(path);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(dsmoe_tokenizer_encode(t, BOS_TEXT, strlen(BOS_TEXT), 0, &ids, &n_ids, NULL),
                     DSMOE_OK);
    assert_true(n_ids > 1);
    free(ids);
    check_id(t, BOS_TEXT, DSMOE_ENCODE_SPECIAL, 100000);
    check_id(t, "schön", 0, 100003);
    check_id(t, "ø", 0, 100002);
    check_id(t, "ü", 0, 100014);
    dsmoe_tokenizer_free(t);
}

/* Another pre-tokenizer goes along as JSON, and that counts. */
static void test_other_cuts(void **state)
{
    (void)state;
    dsmoe_tokenizer *trained = open_tokenizer(TEST_DATA "/text_cli");
    int64_t size = dsmoe_tokenizer_size(trained);
    write_tokenizer(TEST_DATA "/text_cli", size + 3);
    assert_true(has_json());
    dsmoe_tokenizer *t = open_tokenizer(path);
    check_same(t, trained);
    static const char text[] = "Hello there, 1234 times: the word\n\tand what follows.";
    check_text(t, trained, text, sizeof text - 1);
    dsmoe_tokenizer_free(t);
    dsmoe_tokenizer_free(trained);

    dsmoe_error error;
    gguf_writer *writer = begin_file();
    assert_int_equal(gguf_tokenizer_write(TEST_DATA "/text_cli", size - 1, writer, &error),
                     DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "text_cli"));
    assert_int_equal(gguf_tokenizer_write("/nowhere", size, writer, &error), DSMOE_ERROR_IO);
    gguf_writer_abandon(writer);
}

/* ---- small ones ---------------------------------------------------------------------------- */

/* What a test may change; all other keys are as they should be. */
typedef struct made {
    const char *const *tokens; /* NULL at the end */
    const int32_t *types;
    const char *const *merges; /* NULL at the end */
    const char *model, *pre;   /* NULL: no such key */
    size_t n_types;
    int64_t bos, eos, padding; /* -1: no such key */
    bool has_add_bos, add_bos, add_eos;
    const char *chat_template, *json;
    bool types_are_strings, merges_are_numbers, tokens_are_numbers;
    gguf_string odd; /* in place of token 1, if it has bytes */
} made;

static const char *const tokens[] = {"a", "b", "c", "ab", "Ġ", "<s>", "</s>", "ø", "[PAD8]", NULL};
static const int32_t types[] = {1, 1, 1, 1, 1, 3, 3, 4, 5};
static const char *const some_merges[] = {"a b", NULL};
enum { N_TOKENS = COUNT(types) };

static made plain(void)
{
    return (made){.tokens = tokens,
                  .types = types,
                  .n_types = N_TOKENS,
                  .merges = some_merges,
                  .model = "gpt2",
                  .pre = "deepseek-llm",
                  .bos = 5,
                  .eos = 6,
                  .padding = -1,
                  .has_add_bos = true,
                  .add_bos = true};
}

static void put_strings(gguf_writer *w, const char *key, const char *const *list, gguf_string odd)
{
    gguf_string strings[64];
    size_t n = 0;
    for (; list[n]; n++) strings[n] = (gguf_string){list[n], strlen(list[n])};
    if (odd.bytes) strings[1] = odd;
    gguf_writer_strings(w, key, strings, n);
}

static void put_text(gguf_writer *w, const char *key, const char *text)
{
    if (text) gguf_writer_string(w, key, text, strlen(text));
}

static void put_id(gguf_writer *w, const char *key, int64_t id)
{
    if (id >= 0) gguf_writer_u32(w, key, (uint32_t)id);
}

static void write_made(const made *m)
{
    static const char *const words[] = {"1", "2", NULL};
    static const int32_t numbers[] = {1, 2, 3};
    gguf_writer *w = begin_file();
    put_text(w, "tokenizer.ggml.model", m->model);
    put_text(w, "tokenizer.ggml.pre", m->pre);
    if (m->tokens_are_numbers)
        gguf_writer_i32_array(w, "tokenizer.ggml.tokens", numbers, COUNT(numbers));
    else if (m->tokens)
        put_strings(w, "tokenizer.ggml.tokens", m->tokens, m->odd);
    if (m->types_are_strings)
        put_strings(w, "tokenizer.ggml.token_type", words, (gguf_string){0});
    else if (m->types)
        gguf_writer_i32_array(w, "tokenizer.ggml.token_type", m->types, m->n_types);
    if (m->merges_are_numbers)
        gguf_writer_i32_array(w, "tokenizer.ggml.merges", numbers, COUNT(numbers));
    else if (m->merges)
        put_strings(w, "tokenizer.ggml.merges", m->merges, (gguf_string){0});
    put_id(w, "tokenizer.ggml.bos_token_id", m->bos);
    put_id(w, "tokenizer.ggml.eos_token_id", m->eos);
    put_id(w, "tokenizer.ggml.padding_token_id", m->padding);
    if (m->has_add_bos) gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", m->add_bos);
    if (m->add_eos) gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    put_text(w, "tokenizer.chat_template", m->chat_template);
    put_text(w, "tokenizer.huggingface.json", m->json);
    end_file(w);
}

static dsmoe_tokenizer *open_made(const made *m)
{
    write_made(m);
    return open_tokenizer(path);
}

/* "1 2 3" */
static void check_ids(const dsmoe_tokenizer *t, const char *text, int flags, const char *expected)
{
    int32_t *ids;
    size_t n_ids, at = 0;
    char list[256] = "";
    assert_int_equal(dsmoe_tokenizer_encode(t, text, strlen(text), flags, &ids, &n_ids, NULL),
                     DSMOE_OK);
    for (size_t i = 0; i < n_ids; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, i ? " %d" : "%d", ids[i]);
    assert_string_equal(list, expected);
    free(ids);
}

static void test_small(void **state)
{
    (void)state;
    made m = plain();
    dsmoe_tokenizer *t = open_made(&m);
    check_ids(t, "ab cø", DSMOE_ENCODE_BOS, "5 3 4 2 7");
    check_ids(t, "</s>a", DSMOE_ENCODE_SPECIAL, "6 0");
    assert_int_equal(dsmoe_tokenizer_size(t), 8); /* what is unused is none of its tokens */
    assert_true(dsmoe_tokenizer_is_special(t, 5));
    assert_false(dsmoe_tokenizer_is_special(t, 7));
    dsmoe_tokenizer_free(t);

    static const int32_t older[] = {1, 1, 1, 1, 1, 3, 3, 4, 4}; /* of what is unused */
    m.types = older;
    t = open_made(&m);
    assert_int_equal(dsmoe_tokenizer_size(t), 8);
    dsmoe_tokenizer_free(t);

    /* Older files: no name of a pre-tokenizer, no types; what ends a text is special all the same. */
    m.pre = NULL;
    m.types = NULL;
    m.has_add_bos = false;
    t = open_made(&m);
    check_ids(t, "ab", DSMOE_ENCODE_BOS, "3");
    assert_true(dsmoe_tokenizer_is_special(t, 6));
    assert_false(dsmoe_tokenizer_adds_bos(t));
    dsmoe_tokenizer_free(t);
    m.pre = "default";
    m.bos = m.eos = -1;
    t = open_made(&m);
    assert_int_equal(dsmoe_tokenizer_bos(t), -1);
    assert_int_equal(dsmoe_tokenizer_eos(t), -1);
    dsmoe_tokenizer_free(t);
}

/* The texts of a folder, and a tokenizer that is written again from a GGUF file. */
static void test_texts(void **state)
{
    (void)state;
    made m = plain();
    m.chat_template = "{{ \"\\n\" }} ü";
    m.padding = 6;
    m.add_eos = true;
    write_made(&m);
    dsmoe_error error;
    gguf *file;
    gguf_tokenizer_text text;
    must(gguf_open(path, &file, &error), &error);
    assert_true(gguf_tokenizer_present(file));
    must(gguf_tokenizer_text_make(file, &text, &error), &error);
    gguf_close(file);
    json_node *config;
    must(json_node_parse(text.config, text.config_length, "config", &config, &error), &error);
    assert_true(json_node_bool(json_node_member(config, "add_bos_token")));
    assert_true(json_node_bool(json_node_member(config, "add_eos_token")));
    assert_string_equal(json_node_string(json_node_member(config, "bos_token"), NULL), "<s>");
    assert_string_equal(json_node_string(json_node_member(config, "pad_token"), NULL), "</s>");
    assert_string_equal(json_node_string(json_node_member(config, "chat_template"), NULL),
                        m.chat_template);
    json_node_free(config);
    assert_int_equal(text.json[text.json_length], '\0');
    gguf_tokenizer_text_free(&text);

    char copy[320];
    snprintf(copy, sizeof copy, "%s.copy", path);
    dsmoe_tokenizer *first = open_tokenizer(path);
    gguf_writer *writer;
    remove(copy);
    must(gguf_writer_create(copy, &writer, &error), &error);
    must(gguf_tokenizer_write(path, N_TOKENS, writer, &error), &error);
    end_file(writer);
    dsmoe_tokenizer *second = open_tokenizer(copy);
    check_same(first, second);
    dsmoe_tokenizer_free(first);
    dsmoe_tokenizer_free(second);
    gguf_string template = {0};
    must(gguf_open(copy, &file, &error), &error);
    must(gguf_get_string(file, "tokenizer.chat_template", &template, NULL, &error), &error);
    assert_int_equal(template.length, strlen(m.chat_template));
    gguf_close(file);
    remove(copy);
}

static void test_no_tokenizer(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        made m = plain();
        m.model = i ? "none" : NULL;
        write_made(&m);
        dsmoe_error error;
        dsmoe_tokenizer *t;
        assert_int_equal(dsmoe_tokenizer_open(path, &t, &error), DSMOE_ERROR_IO);
        assert_null(t);
        assert_non_null(strstr(error.message, "no tokenizer"));
        assert_non_null(strstr(error.message, path));
    }
}

/* ---- metadata that are not what they say --------------------------------------------------- */

static void must_fail(const made *m, const char *message)
{
    write_made(m);
    dsmoe_error error = {0};
    dsmoe_tokenizer *t = (dsmoe_tokenizer *)1;
    assert_int_not_equal(dsmoe_tokenizer_open(path, &t, &error), DSMOE_OK);
    assert_null(t);
    if (!strstr(error.message, message) || !strstr(error.message, path) ||
        strchr(error.message, '\n'))
        fail_msg("\"%s\" says nothing of \"%s\"", error.message, message);
}

static void test_kinds(void **state)
{
    (void)state;
    made m = plain();
    m.model = "llama";
    must_fail(&m, "tokenizer.ggml.model \"llama\" is not supported, only \"gpt2\"");
    m = plain();
    m.pre = "deepseek-coder";
    must_fail(&m, "\"deepseek-coder\" is not supported, only \"deepseek-llm\"");
    m = plain();
    m.json = "{";
    must_fail(&m, "bad JSON");
    m.json = "{}";
    must_fail(&m, "model");
}

static void test_ids(void **state)
{
    (void)state;
    static const int64_t ids[] = {N_TOKENS, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < COUNT(ids); i++) {
        made m = plain();
        m.bos = ids[i];
        must_fail(&m, "tokenizer.ggml.bos_token_id is ");
        m = plain();
        m.eos = ids[i];
        must_fail(&m, "tokenizer.ggml.eos_token_id is ");
        m = plain();
        m.padding = ids[i];
        must_fail(&m, "tokenizer.ggml.padding_token_id is ");
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const int32_t strange[] = {1, 1, 1, 1, 1, 3, 3, 4, 9}, zero[N_TOKENS] = {0};
    made m = plain();
    m.types_are_strings = true;
    must_fail(&m, "tokenizer.ggml.token_type");
    m = plain();
    m.merges_are_numbers = true;
    must_fail(&m, "tokenizer.ggml.merges");
    m = plain();
    m.tokens_are_numbers = true;
    must_fail(&m, "tokenizer.ggml.tokens");
    m = plain();
    m.n_types = N_TOKENS - 1;
    must_fail(&m, "tokenizer.ggml.token_type has 8 types for the 9 tokens");
    m = plain();
    m.types = strange;
    must_fail(&m, "tokenizer.ggml.token_type[8] is 9");
    m.types = zero;
    must_fail(&m, "tokenizer.ggml.token_type[0] is 0");
    m = plain();
    m.merges = NULL;
    must_fail(&m, "tokenizer.ggml.merges");
    m = plain();
    m.tokens = NULL;
    must_fail(&m, "tokenizer.ggml.tokens");
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
        made m = plain();
        m.odd = cases[i].token;
        m.merges = (const char *const[]){NULL};
        must_fail(&m, cases[i].message);
    }
    /* What other tokenizers call a byte is a token like others here. */
    made m = plain();
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
        made m = plain();
        m.merges = (const char *const[]){"a b", cases[i].merge, NULL};
        must_fail(&m, cases[i].message);
    }
}

/* A million merges of tokens that are not there. */
static void test_many_merges(void **state)
{
    (void)state;
    enum { N = 1000000 };
    gguf_string *many = malloc(N * sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < N; i++) many[i] = (gguf_string){"x y", 3};
    gguf_writer *w = begin_file();
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_strings(w, "tokenizer.ggml.tokens", tokens, (gguf_string){0});
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
        cmocka_unit_test(test_released),   cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_other_cuts), cmocka_unit_test(test_small),
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_no_tokenizer),
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_ids),
        cmocka_unit_test(test_arrays),     cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_merges),     cmocka_unit_test(test_many_merges),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

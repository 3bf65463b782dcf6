/* test_gguf_tokenizer.c - tokenizers in GGUF files: the released one written and read back, and one that
 * the keys cannot express. */
#include "made_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/whole_file.h"
#include "scratch.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

#define BOS_TEXT "<｜begin▁of▁sentence｜>"

/* ---- helpers ------------------------------------------------------------------------------- */

static void write_tokenizer(const char *from, int64_t vocab_size)
{
    dsmoe_error error;
    gguf_writer *writer = begin_file();
    must_work(gguf_tokenizer_write(from, NULL, vocab_size, writer, &error), &error);
    end_file(writer);
}

static bool has_json(void)
{
    dsmoe_error error;
    gguf *file;
    gguf_string json;
    bool found;
    must_work(gguf_open(path, &file, &error), &error);
    must_work(gguf_get_string(file, "tokenizer.huggingface.json", &json, &found, &error), &error);
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

/* Long repetitive texts, which other tokenizers could not handle. */
static void check_repeated(const dsmoe_tokenizer *a, const dsmoe_tokenizer *b, const char *unit,
                           size_t count)
{
    size_t length = strlen(unit);
    char *text = malloc(count * length);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) memcpy(text + i * length, unit, length);
    check_text(a, b, text, count * length);
    free(text);
}

/* Compares every token, BOS and EOS. */
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

/* ---- writing and reading ------------------------------------------------------------------- */

static void test_released(void **state)
{
    (void)state;
    write_tokenizer(TEST_DATA "/tokenizer", 102400);
    assert_false(has_json());
    dsmoe_tokenizer *released = open_tokenizer(TEST_DATA "/tokenizer"), *t = open_tokenizer(path);
    check_same(t, released);
    assert_int_equal(dsmoe_tokenizer_size(t), 100015); /* the model's other ids have no token */
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
    /* Single and overlong bytes, NUL, a surrogate, U+FFFF, a byte order mark. */
    static const char bytes[] = "sch\xc3\xb6n \xf8\x00\xff \x80\xbf \xc0\x80 \xed\xa0\x80 "
                                "\xef\xbf\xbf \xef\xbb\xbf " BOS_TEXT;
    check_text(t, released, bytes, sizeof bytes - 1);
    check_repeated(t, released, "Z", 131072);
    check_repeated(t, released, "A", 43000);
    check_repeated(t, released, " \n", 60000);
    check_repeated(t, released, "\xcc\x81", 100000);
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

/* Text that looks like a special token is text unless special tokens are asked for. Added letters are
 * found besides the byte-level ones. */
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
    static const char look_alike[] = "<|begin_of_sentence|>"; /* other characters */
    assert_int_equal(dsmoe_tokenizer_encode(t, look_alike, strlen(look_alike), DSMOE_ENCODE_SPECIAL,
                                            &ids, &n_ids, NULL),
                     DSMOE_OK);
    assert_true(n_ids > 1);
    free(ids);
    check_id(t, "schön", 0, 100003);
    check_id(t, "ø", 0, 100002);
    check_id(t, "ü", 0, 100014);
    for (int32_t id = 100002; id <= 100014; id++) {
        char *text;
        size_t length;
        assert_int_equal(dsmoe_tokenizer_decode(t, &id, 1, &text, &length, NULL), DSMOE_OK);
        check_id(t, text, 0, id);
        free(text);
    }
    dsmoe_tokenizer_free(t);
}

/* Another pre-tokenizer is stored as JSON, and the JSON is used. */
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
    assert_int_equal(gguf_tokenizer_write(TEST_DATA "/text_cli", NULL, size - 1, writer, &error),
                     DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "text_cli"));
    assert_int_equal(gguf_tokenizer_write("/nowhere", NULL, size, writer, &error), DSMOE_ERROR_IO);
    gguf_writer_abandon(writer);
}

/* ---- small tokenizers ---------------------------------------------------------------------- */

/* `expected` is like "1 2 3". */
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
    made_tokenizer m = plain_tokenizer();
    dsmoe_tokenizer *t = open_made(&m);
    check_ids(t, "ab cø", DSMOE_ENCODE_BOS, "5 3 4 2 7");
    check_ids(t, "</s>a", DSMOE_ENCODE_SPECIAL, "6 0");
    assert_int_equal(dsmoe_tokenizer_size(t), 8); /* unused ids do not count */
    assert_true(dsmoe_tokenizer_is_special(t, 5));
    assert_false(dsmoe_tokenizer_is_special(t, 7));
    dsmoe_tokenizer_free(t);

    static const int32_t older[] = {1, 1, 1, 1, 1, 3, 3, 4, 4}; /* older types of unused ids */
    m.types = older;
    t = open_made(&m);
    assert_int_equal(dsmoe_tokenizer_size(t), 8);
    dsmoe_tokenizer_free(t);

    /* Older files have no name of a pre-tokenizer and no types. EOS is special all the same. */
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

/* The JSON texts made from a GGUF file, and a GGUF tokenizer written again. */
static void test_texts(void **state)
{
    (void)state;
    made_tokenizer m = plain_tokenizer();
    m.chat_template = "{{ \"\\n\" }} ü";
    m.padding = 6;
    m.add_eos = true;
    write_made(&m);
    dsmoe_error error;
    gguf *file;
    gguf_tokenizer_text text;
    must_work(gguf_open(path, &file, &error), &error);
    assert_true(gguf_tokenizer_present(file));
    must_work(gguf_tokenizer_text_make(file, &text, &error), &error);
    gguf_close(file);
    json_node *config;
    must_work(json_node_parse(text.config, text.config_length, "config", &config, &error), &error);
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
    must_work(gguf_writer_create(copy, &writer, &error), &error);
    must_work(gguf_tokenizer_write(path, NULL, MADE_TOKENS, writer, &error), &error);
    end_file(writer);
    dsmoe_tokenizer *second = open_tokenizer(copy);
    check_same(first, second);
    dsmoe_tokenizer_free(first);
    dsmoe_tokenizer_free(second);
    gguf_string template = {0};
    must_work(gguf_open(copy, &file, &error), &error);
    must_work(gguf_get_string(file, "tokenizer.chat_template", &template, NULL, &error), &error);
    assert_int_equal(template.length, strlen(m.chat_template));
    gguf_close(file);
    remove(copy);
}

/* ---- pre-tokenizers by name ------------------------------------------------------------------ */

/* The expected pieces, one after another. */
typedef struct expected_pieces {
    const json_node *list;
    size_t next;
    const char *name, *text;
} expected_pieces;

static dsmoe_status check_piece(void *context, const char *piece, size_t length, dsmoe_error *error)
{
    (void)error;
    expected_pieces *e = context;
    size_t n = 0;
    const char *expected = "";
    if (e->next < json_node_count(e->list))
        expected = json_node_string(json_node_item(e->list, e->next), &n);
    if (n != length || memcmp(expected, piece, n))
        fail_msg("%s, \"%s\": piece %zu is \"%.*s\", not \"%s\"", e->name, e->text, e->next,
                 (int)length, piece, expected);
    e->next++;
    return DSMOE_OK;
}

static void check_pieces(const dsmoe_tokenizer *t, const char *name, const json_node *cases)
{
    regex_scratch *scratch;
    dsmoe_error error;
    must_work(regex_scratch_create(&scratch, &error), &error);
    for (size_t i = 0; i < json_node_count(cases); i++) {
        const json_node *item = json_node_item(cases, i);
        size_t length;
        const char *text = json_node_string(json_node_member(item, "text"), &length);
        expected_pieces e = {json_node_member(item, "pieces"), 0, name, text};
        must_work(
            pre_tokenizer_run(&t->pre_tokenizer, scratch, text, length, check_piece, &e, &error),
            &error);
        assert_int_equal(e.next, json_node_count(e.list));
    }
    regex_scratch_free(scratch);
}

/* Writing a tokenizer again keeps the name of its pre-tokenizer. */
static void check_name_is_kept(const char *name)
{
    char copy[320];
    dsmoe_error error;
    gguf_writer *writer;
    gguf *file;
    gguf_string pre = {0};
    snprintf(copy, sizeof copy, "%s.copy", path);
    remove(copy);
    must_work(gguf_writer_create(copy, &writer, &error), &error);
    must_work(gguf_tokenizer_write(path, NULL, MADE_TOKENS, writer, &error), &error);
    end_file(writer);
    must_work(gguf_open(copy, &file, &error), &error);
    must_work(gguf_get_string(file, "tokenizer.ggml.pre", &pre, NULL, &error), &error);
    assert_true(gguf_string_is(pre, name));
    gguf_close(file);
    remove(copy);
}

/* The public expressions give the same pieces as in another engine (data/pre_tokenizer/pieces.json). */
static void test_pre_tokenizers(void **state)
{
    (void)state;
    whole_file data;
    json_node *root;
    dsmoe_error error;
    must_work(whole_file_read(&data, TEST_DATA "/pre_tokenizer/pieces.json", 1 << 20, &error),
              &error);
    must_work(json_node_parse(data.bytes, data.size, "pieces.json", &root, &error), &error);
    assert_int_equal(n_gguf_pre_tokenizers, json_node_count(root));
    for (size_t i = 0; i < n_gguf_pre_tokenizers; i++) {
        const char *name = gguf_pre_tokenizers[i].name;
        made_tokenizer m = plain_tokenizer();
        m.pre = name;
        dsmoe_tokenizer *t = open_made(&m);
        const json_node *cases = json_node_member(root, name);
        assert_true(cases && json_node_count(cases) > 20);
        check_pieces(t, name, cases);
        dsmoe_tokenizer_free(t);
        check_name_is_kept(name);
    }
    json_node_free(root);
    whole_file_free(&data);
}

static void test_no_tokenizer(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        made_tokenizer m = plain_tokenizer();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released),     cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_other_cuts),   cmocka_unit_test(test_small),
        cmocka_unit_test(test_texts),        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_no_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

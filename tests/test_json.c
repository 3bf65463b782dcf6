/* test_json.c - JSON from untrusted bytes, and the mapped file below it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/json.h"
#include "formats/mapped_file.h"
#include "scratch.h"

/* ---- values ------------------------------------------------------------------------------- */

static json_node *parse(const char *text)
{
    json_node *node;
    dsmoe_error error = {0};
    if (json_node_parse(text, strlen(text), "test", &node, &error) != DSMOE_OK)
        fail_msg("%s: %s", text, error.message);
    return node;
}

static void test_every_kind_at_top_level(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        json_kind kind;
    } cases[] = {
        {"null", JSON_KIND_NULL},
        {"true", JSON_KIND_BOOL},
        {"12", JSON_KIND_INTEGER},
        {"-9223372036854775808", JSON_KIND_INTEGER},
        {"9223372036854775807", JSON_KIND_INTEGER},
        {"1.0", JSON_KIND_REAL},
        {"1e3", JSON_KIND_REAL},
        {"1e-400", JSON_KIND_REAL},
        {"\"\"", JSON_KIND_STRING},
        {" [ ] \n", JSON_KIND_ARRAY},
        {"{}", JSON_KIND_OBJECT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_node *node = parse(cases[i].text);
        assert_int_equal(json_node_kind(node), cases[i].kind);
        json_node_free(node);
    }
    json_node_free(NULL);
}

static void test_values(void **state)
{
    (void)state;
    json_node *node = parse("{\"i\":-7,\"r\":2.5,\"s\":\"gr\\u00fc\\\"n\",\"b\":true,\"f\":false,"
                            "\"a\":[1,2,3]}");
    size_t length;
    assert_int_equal(json_node_count(node), 6);
    assert_int_equal(json_node_integer(json_node_member(node, "i")), -7);
    assert_true(json_node_number(json_node_member(node, "i")) == -7.0);
    assert_true(json_node_number(json_node_member(node, "r")) == 2.5);
    assert_string_equal(json_node_string(json_node_member(node, "s"), &length), "gr\xc3\xbc\"n");
    assert_int_equal(length, 6);
    assert_true(json_node_bool(json_node_member(node, "b")));
    assert_false(json_node_bool(json_node_member(node, "f")));
    assert_null(json_node_member(node, "absent"));
    const json_node *array = json_node_member(node, "a");
    assert_int_equal(json_node_count(array), 3);
    assert_int_equal(json_node_integer(json_node_item(array, 2)), 3);
    json_node_free(node);
}

static dsmoe_status append_key(void *context, const char *key, const json_node *value,
                               dsmoe_error *error)
{
    char *keys = context;
    if (json_node_kind(value) == JSON_KIND_NULL)
        return status_fail(error, DSMOE_ERROR_CONFIG, "stopped at %s", key);
    strcat(keys, key);
    return DSMOE_OK;
}

static void test_each_keeps_the_order_and_stops(void **state)
{
    (void)state;
    char keys[16] = "";
    dsmoe_error error = {0};
    json_node *node = parse("{\"z\":1,\"a\":2,\"m\":3}");
    assert_int_equal(json_node_each(node, append_key, keys, &error), DSMOE_OK);
    assert_string_equal(keys, "zam");
    json_node_free(node);

    keys[0] = '\0';
    node = parse("{\"z\":1,\"a\":null,\"m\":3}");
    assert_int_equal(json_node_each(node, append_key, keys, &error), DSMOE_ERROR_CONFIG);
    assert_string_equal(keys, "z");
    assert_string_equal(error.message, "stopped at a");
    json_node_free(node);
}

/* ---- refused ------------------------------------------------------------------------------ */

static void assert_refused(const char *text, size_t length, const char *says)
{
    json_node *node = (json_node *)text; /* any pointer but NULL */
    dsmoe_error error = {0};
    if (json_node_parse(text, length, "some.json", &node, &error) != DSMOE_ERROR_FORMAT)
        fail_msg("accepted: %.40s", text);
    assert_null(node);
    assert_int_equal(strncmp(error.message, "some.json: ", 11), 0);
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(json_node_parse(text, length, "some.json", &node, NULL), DSMOE_ERROR_FORMAT);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "end of file"},
        {"   ", "end of file"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1,\"\\u0061\":2}", "duplicate"},
        {"[{\"b\":{\"a\":1,\"a\":1}}]", "duplicate"},
        {"{} x", "line 1, column 4"},
        {"[1,]", "column 4"},
        {"[1\n,,]", "line 2"},
        {"{\"a\"}", "bad JSON"},
        {"{'a':1}", "bad JSON"},
        {"[01]", "bad JSON"},
        {"[1.]", "bad JSON"},
        {"[+1]", "bad JSON"},
        {"NaN", "NaN"},
        {"[Infinity]", "bad JSON"},
        {"1e400", "overflow"},
        {"-1e400", "overflow"},
        {"9223372036854775808", "too big"},
        {"-9223372036854775809", "too big"},
        {"\"\\u0000\"", "bad JSON"},
        {"{\"a\\u0000\":1}", "bad JSON"},
        {"\"\\ud800\"", "bad JSON"},
        {"\"\xff\"", "0xff"},
        {"\"\xc0\x80\"", "0xc0"},     /* overlong */
        {"\"\xed\xa0\x80\"", "0xed"}, /* surrogate */
        {"\"a\nb\"", "bad JSON"},
        {"\"abc", "bad JSON"},
        {"\"abc\\", "bad JSON"},
        {"\xef\xbb\xbf{}", "bad JSON"}, /* byte order mark */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].says);
}

static void test_nul_bytes(void **state)
{
    (void)state;
    assert_refused("{}\0", 3, "NUL byte in JSON at offset 2");
    assert_refused("[1\0]", 4, "offset 2");
    assert_refused("\"a\0b\"", 5, "offset 2");
    assert_refused("\"a\\\0b\"", 6, "NUL");
    assert_refused("\0", 1, "offset 0");
}

static void test_depth(void **state)
{
    (void)state;
    enum { DEEP = 100000, ALLOWED = 128 };
    char *text = malloc(DEEP);
    assert_non_null(text);
    memset(text, '[', DEEP);
    assert_refused(text, DEEP, "nested deeper than 128");
    for (size_t i = 0; i + 5 <= DEEP; i += 5) memcpy(text + i, "{\"a\":", 5);
    assert_refused(text, DEEP, "nested deeper than 128");

    memset(text, '[', ALLOWED);
    memset(text + ALLOWED, ']', ALLOWED);
    json_node *node;
    assert_int_equal(json_node_parse(text, 2 * ALLOWED, "test", &node, NULL), DSMOE_OK);
    json_node_free(node);
    /* Siblings and brackets inside strings are not depth. */
    text[0] = '[';
    for (size_t i = 1; i + 6 < DEEP; i += 6) memcpy(text + i, "[\"[\"],", 6);
    size_t length = 1 + (DEEP - 7) / 6 * 6;
    text[length - 1] = ']'; /* in place of the last comma */
    assert_int_equal(json_node_parse(text, length, "test", &node, NULL), DSMOE_OK);
    json_node_free(node);
    free(text);
}

static void test_number_of_values(void **state)
{
    (void)state;
    size_t length = 3 * ((size_t)5 << 20);
    char *text = malloc(length);
    assert_non_null(text);
    for (size_t i = 0; i < length; i += 3) memcpy(text + i, "[],", 3);
    text[0] = '[';
    assert_refused(text, length, "JSON values");
    free(text);
}

/* Every prefix of a good text is refused; with any byte replaced it is parsed or refused. */
static void test_mutations(void **state)
{
    (void)state;
    static const char good[] = "{\"a\":[1,-2.5e3,true,null],\"b\\n\":{\"c\":\"\\u00e9x\"}}";
    static const char bytes[] = {'\0', '"', '\\', '{', ']', ',', '-', '0', 'e', (char)0x80};
    char text[sizeof good];
    json_node *node;
    for (size_t length = 0; length < sizeof good - 1; length++)
        assert_int_equal(json_node_parse(good, length, "test", &node, NULL), DSMOE_ERROR_FORMAT);
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (size_t b = 0; b < sizeof bytes; b++) {
            memcpy(text, good, sizeof good);
            text[i] = bytes[b];
            dsmoe_status status = json_node_parse(text, sizeof good - 1, "test", &node, NULL);
            assert_int_equal(status == DSMOE_OK, node != NULL);
            json_node_free(node);
        }
    }
}

/* ---- files -------------------------------------------------------------------------------- */

static void write_file(const char *text) { write_bytes(text, strlen(text)); }

static void assert_unreadable(const char *name, dsmoe_status status, const char *says)
{
    json_node *node;
    mapped_file file;
    dsmoe_error error = {0};
    assert_int_equal(mapped_file_open(&file, name, &error), status);
    assert_null(file.bytes);
    mapped_file_close(&file);
    assert_non_null(strstr(error.message, name));
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
    assert_int_equal(json_node_read(name, 100, &node, &error), status);
    assert_null(node);
}

static void test_read_file(void **state)
{
    (void)state;
    json_node *node;
    dsmoe_error error = {0};
    write_file("{\"a\":1}");
    assert_int_equal(json_node_read(path, 7, &node, &error), DSMOE_OK);
    assert_int_equal(json_node_integer(json_node_member(node, "a")), 1);
    json_node_free(node);
    assert_int_equal(json_node_read(path, 6, &node, &error), DSMOE_ERROR_FORMAT);
    assert_null(node);
    assert_non_null(strstr(error.message, "7 bytes, at most 6"));

    mapped_file file;
    assert_int_equal(mapped_file_open(&file, path, &error), DSMOE_OK);
    assert_int_equal(file.size, 7);
    assert_memory_equal(file.bytes, "{\"a\":1}", 7);
    mapped_file_close(&file);
    assert_null(file.bytes);
    mapped_file_close(&file);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    assert_unreadable("/nonexistent/config.json", DSMOE_ERROR_IO, "No such file or directory");
    assert_unreadable(directory, DSMOE_ERROR_IO, "Is a directory");
    assert_unreadable("/dev/null", DSMOE_ERROR_IO, "not a regular file");
    write_file("");
    assert_unreadable(path, DSMOE_ERROR_FORMAT, "empty");
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_unreadable(path, DSMOE_ERROR_IO, "not a regular file");
    remove(path);
}

/* json_node_parse_wide reads integers outside int64 as real numbers, and everything else as usual. */
static void test_wide(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": 1000000000000000019884624838656, \"b\": -12345678901234567890,"
        "\"1234567890123456789012\": \"12345678901234567890123\\\"1\","
        "\"c\": 9007199254740993, \"d\": 123456789012345678901.5,"
        "\"e\": [12345678901234567890123]}";
    json_node *node;
    assert_int_equal(json_node_parse(text, sizeof text - 1, "t", &node, NULL), DSMOE_ERROR_FORMAT);
    assert_int_equal(json_node_parse_wide(text, sizeof text - 1, "t", &node, NULL), DSMOE_OK);
    assert_true(json_node_number(json_node_member(node, "a")) == 1e30);
    assert_true(json_node_number(json_node_member(node, "b")) == -12345678901234567890.0);
    assert_int_equal(json_node_integer(json_node_member(node, "c")), 9007199254740993);
    assert_true(json_node_number(json_node_member(node, "d")) == 123456789012345678901.5);
    assert_string_equal(json_node_string(json_node_member(node, "1234567890123456789012"), NULL),
                        "12345678901234567890123\"1");
    assert_int_equal(json_node_kind(json_node_item(json_node_member(node, "e"), 0)),
                     JSON_KIND_REAL);
    json_node_free(node);
    static const char *const bad[] = {"12345678901234567890123a", "\"\\", "{\"a\": 1", "", "\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dsmoe_error error = {0};
        assert_int_equal(json_node_parse_wide(bad[i], strlen(bad[i]), "t", &node, &error),
                         DSMOE_ERROR_FORMAT);
        assert_null(node);
    }
}

/* Errors in a line name the column, but no file and no line number. NULs are allowed on request. */
static void test_line(void **state)
{
    (void)state;
    static const char bad[] = "{\"a\": 1,}", nul[] = "{\"a\": \"x\\u0000y\"}";
    json_node *node;
    dsmoe_error error;
    size_t length;
    assert_int_equal(json_line_parse(bad, strlen(bad), false, &node, &error), DSMOE_ERROR_FORMAT);
    assert_true(strstr(error.message, "bad JSON in column 9") == error.message);
    assert_int_equal(json_line_parse(nul, strlen(nul), false, &node, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "NUL"));
    for (int i = 0; i < 2; i++) {
        dsmoe_status status = i ? json_node_parse_nul(nul, strlen(nul), "text", &node, &error)
                                : json_line_parse(nul, strlen(nul), true, &node, &error);
        assert_int_equal(status, DSMOE_OK);
        const char *string = json_node_string(json_node_member(node, "a"), &length);
        assert_int_equal(length, 3);
        assert_memory_equal(string, "x\0y", 4);
        json_node_free(node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_every_kind_at_top_level),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_each_keeps_the_order_and_stops),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_number_of_values),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_read_file),
        cmocka_unit_test(test_unreadable_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

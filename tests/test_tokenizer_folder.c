/* test_tokenizer_folder.c - the files of a tokenizer in a folder: chat_template.jinja in addition to the
 * chat_template in tokenizer_config.json or instead of it, and tokenizers of another kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/folder.h"
#include "formats/json.h"
#include "scratch.h"
#include "data_files.h"
#include "text/chat_form.h"
#include "text/tokenizer_files.h"

static const char tokens[] = "\"bos_token\": \"<|begin|>\", \"eos_token\": \"<|end|>\"";
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] +"
    " '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}\n";
static const char other[] = "{{ 'another form' }}";

static void put_json(void)
{
    assert_int_equal(folder_copy(TEST_DATA "/text_cli", "tokenizer.json", directory, true, NULL),
                     DSMOE_OK);
}

static dsmoe_tokenizer *open_here(void)
{
    dsmoe_tokenizer *t;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(directory, &t, &error) != DSMOE_OK) fail_msg("%s", error.message);
    return t;
}

static void check_refused(const char *says, const char *and_says)
{
    dsmoe_tokenizer *t;
    dsmoe_error error;
    assert_int_not_equal(dsmoe_tokenizer_open(directory, &t, &error), DSMOE_OK);
    if (!strstr(error.message, says) || !strstr(error.message, and_says))
        fail_msg("%s", error.message);
    assert_null(strchr(error.message, '\n'));
}

/* The config's other members keep their effect, whatever the template file holds. */
static void check_form(const char *name, bool has_bos)
{
    dsmoe_tokenizer *t = open_here();
    assert_true(dsmoe_tokenizer_has_chat(t));
    assert_int_equal(dsmoe_tokenizer_bos(t) >= 0, has_bos);
    if (name)
        assert_ptr_equal(t->chat_form, chat_form_named(name));
    else
        assert_null(t->chat_form);
    dsmoe_tokenizer_free(t);
}

static void test_template_file(void **state)
{
    (void)state;
    char text[2048];
    put_json();
    snprintf(text, sizeof text, "{%s}", tokens);
    write_text("tokenizer_config.json", text);
    dsmoe_tokenizer *t = open_here();
    assert_false(dsmoe_tokenizer_has_chat(t));
    dsmoe_tokenizer_free(t);
    write_text("chat_template.jinja", chatml);
    check_form("chatml", true);
    write_text("chat_template.jinja", other);
    check_form(NULL, true);
    /* The file takes precedence over the member, wherever the member is. */
    write_text("chat_template.jinja", chatml);
    static const char *const members[] = {
        "{\"chat_template\": \"{{ 'other' }}\", %s}",
        "{ %s , \"chat_template\" : \"} \\\" , {\" }",
        "{%s, \"chat_template\": [{\"name\": \"default\", \"template\": \"{{ 'x' }}\"}]}",
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        snprintf(text, sizeof text, members[i], tokens);
        write_text("tokenizer_config.json", text);
        check_form("chatml", true);
    }
}

/* Written files have the template, and the other members with their original spelling. */
static void test_written(void **state)
{
    (void)state;
    put_json();
    write_text("tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656, \"a\": {\"b\": [1, \"}\"]},"
               "\"chat_template\": \"old\", \"last\": null}\n");
    write_text("chat_template.jinja", "a \"quote\", a \\ and\na line: \xc3\xa9\n");
    make_folder("copy");
    tokenizer_files files;
    assert_int_equal(tokenizer_files_open(&files, directory, NULL), DSMOE_OK);
    assert_int_equal(tokenizer_files_write(&files, in_directory("copy"), NULL), DSMOE_OK);
    tokenizer_files_close(&files);
    size_t size;
    unsigned char *bytes = read_data("copy/tokenizer_config.json", &size);
    json_node *root;
    assert_int_equal(json_node_parse_wide((char *)bytes, size, "copy", &root, NULL), DSMOE_OK);
    assert_int_equal(json_node_count(root), 4);
    assert_string_equal(json_node_string(json_node_member(root, "chat_template"), NULL),
                        "a \"quote\", a \\ and\na line: \xc3\xa9\n");
    char *text = strndup((char *)bytes, size);
    assert_non_null(strstr(text, "\"model_max_length\": 1000000000000000019884624838656,"));
    assert_non_null(strstr(text, "\"a\": {\"b\": [1, \"}\"]},"));
    assert_non_null(strstr(text, "\"last\": null}"));
    free(text);
    free(bytes);
    json_node_free(root);
}

static void test_bad_templates(void **state)
{
    (void)state;
    put_json();
    write_text("tokenizer_config.json", "{}");
    write_data("chat_template.jinja", "a\0b", 3);
    check_refused("chat_template.jinja", "NUL");
    write_data("chat_template.jinja", "", 0);
    check_refused("chat_template.jinja", "empty");
    write_text("chat_template.jinja", "\xff{% for");
    check_form(NULL, false);
    write_text("tokenizer_config.json", "{\"a\": ");
    check_refused("tokenizer_config.json", "line 1");
    write_text("tokenizer_config.json", "[]");
    check_refused("tokenizer_config.json", "must be an object");
}

/* Folders like Moonlight's. */
static void test_tiktoken(void **state)
{
    (void)state;
    write_text("tiktoken.model", "IQ== 0\n");
    write_text("tokenizer_config.json", "{}");
    check_refused("tiktoken.model", "tokenizer.json");
    put_json(); /* if someone has made one */
    dsmoe_tokenizer_free(open_here());
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, empty_directory, clear_directory)
    const struct CMUnitTest tests[] = {TEST(test_template_file), TEST(test_written),
                                       TEST(test_bad_templates), TEST(test_tiktoken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

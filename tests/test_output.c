/* test_output.c - where output may be written: kinds of files, inputs under all their names, folders with
 * and without other files, free space on the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_files.h"
#include "formats/output.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define IMATRIX "GGUF\3\0\0\0general.type\x08\0\0\0\x07\0\0\0\0\0\0\0imatrix"
#define PAGE "<!DOCTYPE html>\n<meta name=\"generator\" content=\"dsmoe 1\">"

static void assert_says(dsmoe_status status, const dsmoe_error *error, const char *words)
{
    if (!words && status == DSMOE_OK) return;
    if (!words) fail_msg("refused: %s", error->message);
    if (status == DSMOE_OK) fail_msg("not refused; '%s' is expected", words);
    if (!strstr(error->message, words)) fail_msg("no '%s' in: %s", words, error->message);
}

/* `words` NULL: writing must be allowed. */
static void check(const dsmoe_output *output, const char *words)
{
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_output_check(output, &error);
    assert_says(status, &error, words);
}

static void check_folder(const char *name, const char *const *own, int n_own, const char *words)
{
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_output_folder_check(in_directory(name), own, n_own, &error);
    assert_says(status, &error, words);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        int kind; /* -1: none */
    } files[] = {
        {"GGUF\3\0\0\0general.architecture", 28, DSMOE_OUTPUT_MODEL},
        {IMATRIX, sizeof IMATRIX - 1, DSMOE_OUTPUT_IMATRIX},
        {PAGE, sizeof PAGE - 1, DSMOE_OUTPUT_PAGE},
        {"[\n  {\"role\": \"user\", \"content\": \"a\"}\n]\n", 40, DSMOE_OUTPUT_CONVERSATION},
        {"[\n]\n", 4, DSMOE_OUTPUT_CONVERSATION},
        {" {\"added_tokens\": []}", 21, DSMOE_OUTPUT_TOKENIZER},
        {"{\"model\": {\"vocab\": {}}}", 24, DSMOE_OUTPUT_TOKENIZER},
        {"{\"tokenizer_class\": \"A\"}", 24, DSMOE_OUTPUT_TOKENIZER},
        {"{\n  \"experts\": {\"1\": [0]}}", 26, DSMOE_OUTPUT_EXPERTS},
        {"{\"n_routed_experts\": 64}", 24, -1},
        {"{\"precious\": 1}", 15, -1},
        {"[\"added_tokens\"]", 16, -1},
        {"GGUF is a form of files", 23, -1},
        {"GGUF\0\0\0\0", 8, -1},
        {"GGUF\3\0\0", 7, -1},
        {"<!DOCTYPE html>\n<p>mine", 23, -1},
        {"GGU", 3, -1},
        {"a letter", 8, -1},
        {"[1]", 3, -1},
        {"   ", 3, -1},
        {"\0{", 2, -1},
    };
    for (size_t i = 0; i < COUNT(files); i++) {
        write_data("file", files[i].bytes, files[i].size);
        for (int kind = DSMOE_OUTPUT_MODEL; kind <= DSMOE_OUTPUT_EXPERTS; kind++) {
            dsmoe_output output = {.path = in_directory("file"), .kind = (dsmoe_output_kind)kind};
            bool same = kind == files[i].kind;
            check(&output, same ? "--force replaces it" : "choose another name");
            output.replace = true;
            check(&output, same ? NULL : "choose another name");
        }
    }
    write_data("file", "", 0);
    check(&(dsmoe_output){.path = in_directory("file")}, NULL);
}

static void test_places(void **state)
{
    (void)state;
    make_folder("folder");
    assert_int_equal(symlink("nothing", in_directory("loose")), 0);
    write_text("text", "a");
    check(&(dsmoe_output){.path = in_directory("new")}, NULL);
    check(&(dsmoe_output){.path = in_directory("folder"), .replace = true}, "not a regular file");
    check(&(dsmoe_output){.path = in_directory("loose"), .replace = true}, "broken symbolic link");
    check(&(dsmoe_output){.path = in_directory("no/new")}, "No such file");
    check(&(dsmoe_output){.path = in_directory("text/new")}, "text");
    check(&(dsmoe_output){.path = ""}, "name");
    check(&(dsmoe_output){.path = NULL}, "name");
    check(NULL, "name");
    assert_int_equal(chmod(in_directory("folder"), 0555), 0);
    if (access(in_directory("folder"), W_OK) != 0) /* root may write there */
        check(&(dsmoe_output){.path = in_directory("folder/new")}, "Permission denied");
    assert_int_equal(chmod(in_directory("folder"), 0755), 0);
}

static void test_inputs(void **state)
{
    (void)state;
    write_data("input", "GGUF\3\0\0", 8);
    write_data("other", "GGUF\3\0\0", 8);
    assert_int_equal(link(in_directory("input"), in_directory("hard")), 0);
    assert_int_equal(symlink("input", in_directory("soft")), 0);
    make_folder("sub");
    static const char *const names[] = {"input", "hard", "soft", "sub/../input"};
    const char *inputs[] = {NULL, "", in_directory("missing"), in_directory("input")};
    dsmoe_output output = {.replace = true, .inputs = inputs, .n_inputs = COUNT(inputs)};
    for (size_t i = 0; i < COUNT(names); i++) {
        char output_path[400];
        snprintf(output_path, sizeof output_path, "%s/%s", directory, names[i]);
        output.path = output_path;
        check(&output, "is one of the inputs");
    }
    char partial[420], whole[400]; /* the name used while writing */
    snprintf(whole, sizeof whole, "%s/whole", directory);
    snprintf(partial, sizeof partial, "%s.partial", whole);
    assert_int_equal(link(in_directory("input"), partial), 0);
    output.path = whole;
    check(&output, ".partial");
    output.path = in_directory("other");
    check(&output, NULL);
}

/* A file that has the name used while writing may belong to the user too. */
static void test_partial_files(void **state)
{
    (void)state;
    static const char gguf[] = "GGUF\3\0\0\0general.architecture";
    char way[400];
    snprintf(way, sizeof way, "%s", in_directory("way"));
    dsmoe_output output = {.path = way, .kind = DSMOE_OUTPUT_MODEL};
    write_text("way.partial", "a letter");
    check(&output, "way.partial: already exists");
    output.replace = true;
    check(&output, "or remove it");
    write_data("way.partial", gguf, sizeof gguf - 1);
    check(&output, NULL);
    output.replace = false;
    check(&output, "--force");
    write_text("way.partial", "");
    check(&output, NULL);
    assert_int_equal(unlink(in_directory("way.partial")), 0);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void test_folders(void **state)
{
    (void)state;
    static const char *const own[] = {"made", NULL, ""};
    check_folder("new", NULL, 0, NULL);
    check_folder("new/in/new", NULL, 0, NULL);
    make_folder("full");
    check_folder("full", NULL, 0, NULL);
    write_text("full/.hidden", "");
    check_folder("full", NULL, 0, NULL);
    write_text("full/made", "");
    write_text("full/made.partial", "");
    check_folder("full", own, COUNT(own), NULL);
    check_folder("full", NULL, 0, "new or empty");
    write_text("full/madee", "");
    check_folder("full", own, COUNT(own), "madee");
    check_folder("full/made", NULL, 0, "full/made");
    check_folder("full/made/new", NULL, 0, "full/made");
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_output_folder_check("", NULL, 0, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_output_folder_check("here-and-new", NULL, 0, &error), DSMOE_OK);
}

static void test_room(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_int_equal(output_check_room(in_directory("new"), 1, &error), DSMOE_OK);
    assert_int_equal(output_check_room(in_directory("no/new"), 1e30, &error), DSMOE_OK);
    assert_int_equal(output_check_room(in_directory("new"), 1e30, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "the disk has"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_kinds),  TEST(test_partial_files), TEST(test_places),
        TEST(test_inputs), TEST(test_folders),       TEST(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_generation_config.c - generation_config.json: the released one, the public defaults, and files that
 * must be refused. */
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

#include "model/generation_config.h"
#include "scratch.h"

static const dsmoe_config released = {
    .vocab_size = 102400, .bos_token_id = 100000, .eos_token_id = 100001};

static dsmoe_status parse(const char *text, dsmoe_generation_config *out, dsmoe_error *error)
{
    return generation_config_parse(text, strlen(text), "some.json", &released, out, error);
}

static dsmoe_generation_config parse_good(const char *text)
{
    dsmoe_generation_config out;
    dsmoe_error error = {0};
    if (parse(text, &out, &error) != DSMOE_OK) fail_msg("%s: %s", text, error.message);
    return out;
}

/* ---- accepted files ------------------------------------------------------------------------- */

static void assert_defaults(const dsmoe_generation_config *out)
{
    assert_false(out->do_sample);
    assert_true(out->temperature == 1);
    assert_true(out->top_p == 1);
    assert_true(out->repetition_penalty == 1);
    assert_int_equal(out->top_k, 50);
    assert_int_equal(out->bos_token_id, 100000);
    assert_int_equal(out->n_eos_token_ids, 1);
    assert_int_equal(out->eos_token_id[0], 100001);
}

static void test_released(void **state)
{
    (void)state;
    dsmoe_generation_config out =
        parse_good("{\"_from_model_config\": true, \"bos_token_id\": 100000,"
                   " \"eos_token_id\": 100001, \"transformers_version\": \"4.36.2\"}");
    assert_defaults(&out);
}

static void test_defaults(void **state)
{
    (void)state;
    dsmoe_generation_config out = parse_good("{}");
    assert_defaults(&out);
    out =
        parse_good("{\"do_sample\": null, \"temperature\": null, \"top_p\": null, \"top_k\": null,"
                   "\"repetition_penalty\": null, \"bos_token_id\": null,"
                   "\"eos_token_id\": null, \"max_length\": \"of no concern here\"}");
    assert_defaults(&out);
    dsmoe_config none = {.vocab_size = 8, .bos_token_id = -1, .eos_token_id = -1};
    assert_int_equal(generation_config_parse("{}", 2, "some.json", &none, &out, NULL), DSMOE_OK);
    assert_int_equal(out.bos_token_id, -1);
    assert_int_equal(out.n_eos_token_ids, 0);
}

static void test_values(void **state)
{
    (void)state;
    dsmoe_generation_config out =
        parse_good("{\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.95, \"top_k\": 0,"
                   "\"repetition_penalty\": 1.1, \"bos_token_id\": 0,"
                   "\"eos_token_id\": [102399, 1, 2, 3, 4, 5, 6, 7]}");
    assert_true(out.do_sample);
    assert_true(out.temperature == 0.7);
    assert_true(out.top_p == 0.95);
    assert_true(out.repetition_penalty == 1.1);
    assert_int_equal(out.top_k, 0);
    assert_int_equal(out.bos_token_id, 0);
    assert_int_equal(out.n_eos_token_ids, 8);
    assert_int_equal(out.eos_token_id[0], 102399);
    assert_int_equal(out.eos_token_id[7], 7);
    out = parse_good("{\"temperature\": 0, \"eos_token_id\": [5]}");
    assert_true(out.temperature == 0);
    assert_int_equal(out.n_eos_token_ids, 1);
    assert_int_equal(out.eos_token_id[0], 5);
}

/* ---- refused files -------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        dsmoe_status status;
        const char *says;
    } cases[] = {
        {"", DSMOE_ERROR_FORMAT, "bad JSON"},
        {"[]", DSMOE_ERROR_FORMAT, "an object, not an array"},
        {"{\"top_k\": 1, \"top_k\": 1}", DSMOE_ERROR_FORMAT, "duplicate"},
        {"{\"do_sample\": 1}", DSMOE_ERROR_CONFIG, "do_sample must be true or false"},
        {"{\"temperature\": \"hot\"}", DSMOE_ERROR_CONFIG, "temperature must be a number"},
        {"{\"temperature\": -1}", DSMOE_ERROR_CONFIG, "temperature is -1"},
        {"{\"temperature\": 1e30}", DSMOE_ERROR_CONFIG, "temperature is 1e+30"},
        {"{\"top_p\": 1.5}", DSMOE_ERROR_CONFIG, "top_p is 1.5, outside 0 to 1"},
        {"{\"top_p\": -0.1}", DSMOE_ERROR_CONFIG, "top_p is -0.1"},
        {"{\"top_k\": 2.5}", DSMOE_ERROR_CONFIG, "top_k must be an integer"},
        {"{\"top_k\": -1}", DSMOE_ERROR_CONFIG, "top_k is -1"},
        {"{\"top_k\": 9223372036854775807}", DSMOE_ERROR_CONFIG, "top_k is"},
        {"{\"repetition_penalty\": 0}", DSMOE_ERROR_CONFIG, "repetition_penalty is 0"},
        {"{\"bos_token_id\": [1]}", DSMOE_ERROR_CONFIG, "bos_token_id must be an integer"},
        {"{\"bos_token_id\": 102400}", DSMOE_ERROR_CONFIG, "bos_token_id is 102400"},
        {"{\"bos_token_id\": -1}", DSMOE_ERROR_CONFIG, "bos_token_id is -1"},
        {"{\"eos_token_id\": 4294967295}", DSMOE_ERROR_CONFIG, "eos_token_id is 4294967295"},
        {"{\"eos_token_id\": \"2\"}", DSMOE_ERROR_CONFIG, "eos_token_id must be an integer"},
        {"{\"eos_token_id\": []}", DSMOE_ERROR_CONFIG, "eos_token_id is an array of 0"},
        {"{\"eos_token_id\": [1, null]}", DSMOE_ERROR_CONFIG, "not null"},
        {"{\"eos_token_id\": [1, 102400]}", DSMOE_ERROR_CONFIG, "eos_token_id is 102400"},
        {"{\"eos_token_id\": [[1]]}", DSMOE_ERROR_CONFIG, "not an array"},
        {"{\"eos_token_id\": [1,2,3,4,5,6,7,8,9]}", DSMOE_ERROR_CONFIG, "an array of 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_generation_config out;
        dsmoe_error error = {0};
        if (parse(cases[i].text, &out, &error) != cases[i].status)
            fail_msg("%s: %s", cases[i].text, error.message);
        if (strncmp(error.message, "some.json: ", 11) || !strstr(error.message, cases[i].says))
            fail_msg("%s: '%s' does not say '%s'", cases[i].text, error.message, cases[i].says);
        assert_int_equal(parse(cases[i].text, &out, NULL), cases[i].status);
    }
}

static void test_files(void **state)
{
    (void)state;
    dsmoe_generation_config out;
    dsmoe_error error = {0};
    assert_int_equal(generation_config_read(directory, &released, &out, &error), DSMOE_OK);
    assert_defaults(&out); /* there is no file */

    snprintf(path, sizeof path, "%s/generation_config.json", directory);
    write_bytes("{\"top_k\": 7}", 12);
    assert_int_equal(generation_config_read(directory, &released, &out, &error), DSMOE_OK);
    assert_int_equal(out.top_k, 7);
    write_bytes("{\"top_k\": -7}", 13);
    assert_int_equal(generation_config_read(directory, &released, &out, &error),
                     DSMOE_ERROR_CONFIG);
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    assert_int_equal(unlink(path), 0);

    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(generation_config_read(directory, &released, &out, &error), DSMOE_ERROR_IO);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("nowhere", path), 0); /* exists, but cannot be read */
    assert_int_equal(generation_config_read(directory, &released, &out, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "generation_config.json"));
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

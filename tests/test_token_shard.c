/* test_token_shard.c - files of tokens in the public format: written tokens are read back, and false
 * headers are refused (R03). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>

#include "data_files.h"
#include "formats/token_shard.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const uint32_t some[] = {0, 1, 300, 65535, 2};

static void assert_refused(const char *name, const char *says)
{
    size_t size;
    unsigned char *bytes = read_data(name, &size);
    token_shard shard = {.n_tokens = 99};
    dsmoe_error error = {0};
    assert_int_equal(token_shard_parse(bytes, size, name, &shard, &error), DSMOE_ERROR_FORMAT);
    if (!strstr(error.message, name) || !strstr(error.message, says))
        fail_msg("'%s' does not name the file and say '%s'", error.message, says);
    assert_null(shard.tokens);
    assert_int_equal(shard.n_tokens, 0);
    assert_int_equal(token_shard_parse(bytes, size, name, &shard, NULL), DSMOE_ERROR_FORMAT);
    free(bytes);
}

static void assert_tokens(const char *name, int token_size, const uint32_t *tokens, size_t n)
{
    size_t size;
    unsigned char *bytes = read_data(name, &size);
    token_shard shard;
    dsmoe_error error = {0};
    if (token_shard_parse(bytes, size, name, &shard, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_int_equal(shard.token_size, token_size);
    assert_int_equal(shard.n_tokens, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(token_shard_token(&shard, i), tokens[i]);
    free(bytes);
}

static void test_public_forms(void **state)
{
    (void)state;
    static const uint32_t wide[] = {0, 70000, 4294967295u};
    write_shard("a", 20240520, 1, COUNT(some), some, COUNT(some), 2);
    assert_tokens("a", 2, some, COUNT(some));
    write_shard("b", 20240801, 7, COUNT(wide), wide, COUNT(wide), 4);
    assert_tokens("b", 4, wide, COUNT(wide));
    write_shard("c", 20240520, 1, 0, NULL, 0, 2);
    assert_tokens("c", 2, NULL, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    write_data("nothing", "", 0);
    assert_refused("nothing", "not a shard");
    write_data("text", "some text", 9);
    assert_refused("text", "not a shard");
    write_shard("swapped", 0x08d93401, 1, 5, some, 5, 2); /* the magic's bytes reversed */
    assert_refused("swapped", "not a shard");
    write_shard("version", 20240520, 2, 5, some, 5, 2);
    assert_refused("version", "version 2");
    write_shard("mixed", 20240801, 1, 5, some, 5, 4);
    assert_refused("mixed", "version 1");
    write_shard("negative", 20240520, 1, -1, some, 5, 2);
    assert_refused("negative", "says -1 tokens");
    write_shard("fewer", 20240520, 1, 6, some, 5, 2);
    assert_refused("fewer", "says 6 tokens of 2 bytes, but 10 bytes follow");
    write_shard("more", 20240520, 1, 4, some, 5, 2);
    assert_refused("more", "says 4 tokens");
    write_shard("huge", 20240801, 7, INT32_MAX, some, 5, 4);
    assert_refused("huge", "says 2147483647 tokens");

    size_t size;
    write_shard("whole", 20240520, 1, 5, some, 5, 2);
    unsigned char *bytes = read_data("whole", &size);
    for (size_t cut = 0; cut < size; cut += cut < 16 || cut > 1010 ? 1 : 100) {
        write_data("cut", bytes, cut);
        assert_refused("cut", "");
    }
    free(bytes);
}

static void test_find_above(void **state)
{
    (void)state;
    write_shard("a", 20240520, 1, COUNT(some), some, COUNT(some), 2);
    size_t size;
    unsigned char *bytes = read_data("a", &size);
    token_shard shard;
    assert_int_equal(token_shard_parse(bytes, size, "a", &shard, NULL), DSMOE_OK);
    assert_int_equal(token_shard_find_above(&shard, 65536), COUNT(some));
    assert_int_equal(token_shard_find_above(&shard, 65535), 3);
    assert_int_equal(token_shard_find_above(&shard, 300), 2);
    assert_int_equal(token_shard_find_above(&shard, 1), 1);
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)
    const struct CMUnitTest tests[] = {
        TEST(test_public_forms),
        TEST(test_refusals),
        TEST(test_find_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

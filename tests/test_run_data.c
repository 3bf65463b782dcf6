/* test_run_data.c - runs and their data: text that was moved or changed, files that are left out, shards
 * together with text, a tokenizer that is not trained on held-out text. */
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

#include "base/hash.h"
#include "formats/token_shard.h"
#include "run_witness.h"
#include "scratch.h"
#include "train/tokenizer_hash.h"

static void append(const char *name, const char *text, size_t length)
{
    FILE *file = fopen(name, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* A resumed run needs only its tokens, not the text. */
static void test_text_is_gone(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "gone");
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    char text[TINY_PATH], away[TINY_PATH], cache[TINY_PATH];
    copy_path(text, directory, "text");
    copy_path(away, directory, "away");
    copy_path(cache, run_folder("gone"), "data.cache");
    assert_int_equal(rename(text, away), 0);
    witness w = {0};
    must_resume(run_folder("gone"), 4, 1, &w);
    assert_int_equal(w.first_step, 2);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, text));
    assert_non_null(strstr(w.message, "data.cache"));

    /* Without the tokens the run cannot continue, and none of its files is changed. */
    size_t size;
    char *bytes = tiny_read(cache, &size);
    FILE *file = fopen(cache, "r+b");
    assert_non_null(file);
    fseek(file, 1500, SEEK_SET);
    fputs("damage", file);
    fclose(file);
    must_fail(NULL, (dsmoe_run_options){.resume = run_folder("gone")}, DSMOE_ERROR_FORMAT,
              "data.cache: the data cache is damaged");
    assert_int_equal(unlink(cache), 0);
    must_fail(NULL, (dsmoe_run_options){.resume = run_folder("gone")}, DSMOE_ERROR_IO,
              "restore it");
    append(cache, bytes, size);
    free(bytes);
    assert_int_equal(rename(away, text), 0);
    must_resume(run_folder("gone"), 0, 1, NULL);
    assert_same_end("straight", "gone");
    tiny_remove(run_folder("gone"));
}

/* An unmounted disk leaves an empty folder, so a folder without files counts as missing text. */
static void test_text_is_empty(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "empty");
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    char text[TINY_PATH], away[TINY_PATH];
    copy_path(text, directory, "text");
    copy_path(away, directory, "away");
    assert_int_equal(rename(text, away), 0);
    assert_int_equal(mkdir(text, 0777), 0);
    assert_int_equal(mkdir(tiny_path(text, "sub"), 0777), 0);
    append(tiny_path(text, ".hidden"), "x", 1);
    witness w = {0};
    must_resume(run_folder("empty"), 0, 1, &w);
    assert_int_equal(w.first_step, 2);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, "data.cache"));
    assert_same_end("straight", "empty");
    tiny_remove(text);
    assert_int_equal(rename(away, text), 0);
    tiny_remove(run_folder("empty"));
}

/* Text in a renamed file, which changes the name of its kind, is still the same text. */
static void test_text_is_renamed(void **state)
{
    (void)state;
    char from[TINY_PATH], to[TINY_PATH];
    copy_path(from, directory, "one.txt");
    copy_path(to, directory, "two.txt");
    size_t size;
    char *bytes = tiny_read(tiny_path(directory, "text/sums.txt"), &size);
    append(from, bytes, size);
    dsmoe_run_settings s = tiny_settings(directory, "renamed");
    snprintf(s.data[0], sizeof s.data[0], "%s", from);
    s.held_out = 0.1;
    s.vocab_size = 258;
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    assert_int_equal(rename(from, to), 0);
    snprintf(s.data[0], sizeof s.data[0], "%s", to);
    const char *given[] = {"data"};
    dsmoe_run_options options = {
        .resume = run_folder("renamed"), .n_threads = 1, .given = given, .n_given = 1};
    witness w = {0};
    must_run(&s, options, &w);
    assert_int_equal(w.first_step, 2);
    assert_int_equal(w.n_messages, 0);
    tiny_remove(run_folder("renamed"));
    assert_int_equal(unlink(to), 0);
    free(bytes);
}

/* The cache's key for the folder's text by the earlier rules. */
static uint64_t older_key(const char *run)
{
    static const char *const kinds[] = {"names", "sums"};
    const double held_out = tiny_settings(directory, "").held_out;
    dsmoe_tokenizer *tokenizer;
    uint64_t of_tokenizer;
    assert_int_equal(dsmoe_tokenizer_open(run, &tokenizer, NULL), DSMOE_OK);
    assert_int_equal(tokenizer_hash(tokenizer, HASH_OLD, &of_tokenizer, NULL), DSMOE_OK);
    dsmoe_tokenizer_free(tokenizer);
    hash_state h;
    hash_begin_as(&h, HASH_OLD, 2);
    hash_add_number(&h, of_tokenizer);
    hash_add_number(&h, (uint64_t)tiny_config().vocab_size);
    hash_add_number(&h, DSMOE_BAD_BYTES_REPLACE);
    hash_add(&h, &held_out, sizeof held_out);
    for (int i = 0; i < 2; i++) hash_add(&h, kinds[i], strlen(kinds[i]) + 1);
    for (uint64_t i = 0; i < 2; i++) {
        char name[32];
        size_t size;
        snprintf(name, sizeof name, "text/%s.txt", kinds[i]);
        char *bytes = tiny_read(tiny_path(directory, name), &size);
        hash_add_number(&h, 0); /* this is a text */
        hash_add_number(&h, i);
        hash_add_number(&h, size);
        hash_add(&h, bytes, size);
        free(bytes);
    }
    return hash_end(&h);
}

static void put_old_hash(char *at, const char *bytes, size_t size)
{
    uint64_t hash = hash_bytes_as(HASH_OLD, bytes, size, 0);
    memcpy(at, &hash, sizeof hash);
}

/* Turns a data cache into one of an earlier version, with another key. */
static void put_key(const char *cache, uint64_t key)
{
    enum {
        SIGNATURE = 64,
        KEY = SIGNATURE + 8,
        LIST_SIZE = SIGNATURE + 9 * 8,
        TOKEN_HASH = SIGNATURE + 10 * 8,
        LIST_HASH = SIGNATURE + 11 * 8,
        HEADER = TOKEN_SHARD_HEADER_SIZE,
        HASH = HEADER - 8
    };
    size_t size;
    char *bytes = tiny_read(cache, &size);
    uint64_t list_size;
    memcpy(&list_size, bytes + LIST_SIZE, sizeof list_size);
    memcpy(bytes + SIGNATURE, "DM-Data2", 8);
    memcpy(bytes + KEY, &key, sizeof key);
    put_old_hash(bytes + TOKEN_HASH, bytes + HEADER, size - HEADER - list_size);
    put_old_hash(bytes + LIST_HASH, bytes + size - list_size, list_size);
    put_old_hash(bytes + HASH, bytes, HASH);
    assert_int_equal(unlink(cache), 0);
    append(cache, bytes, size);
    free(bytes);
}

/* A run started when other documents were held out continues with its own split. */
static void test_older_split(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "older");
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    char cache[TINY_PATH];
    copy_path(cache, run_folder("older"), "data.cache");
    put_key(cache, older_key(run_folder("older")) + 1);
    must_fail(NULL, (dsmoe_run_options){.resume = run_folder("older")}, DSMOE_ERROR_FORMAT,
              "the text has changed");
    put_key(cache, older_key(run_folder("older")));
    must_resume(run_folder("older"), 0, 1, NULL);
    assert_same_end("straight", "older");
    tiny_remove(run_folder("older"));
}

/* A run that has not started cannot continue without its text. */
static void test_text_was_never_there(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "never");
    snprintf(s.data[0], sizeof s.data[0], "%s", tiny_path(directory, "nowhere"));
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_IO, "nowhere");
    tiny_remove(run_folder("never"));
}

/* Changed text is an error, which leaves the run's tokens unchanged. */
static void test_text_changed(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "changed");
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    char file[TINY_PATH], text[TINY_PATH], away[TINY_PATH];
    copy_path(text, directory, "text");
    copy_path(away, directory, "away");
    copy_path(file, text, "sums.txt");
    size_t size;
    char *bytes = tiny_read(file, &size);
    append(file, "one more line\n", 14);
    for (int i = 0; i < 2; i++)
        must_fail(NULL, (dsmoe_run_options){.resume = run_folder("changed")}, DSMOE_ERROR_FORMAT,
                  "move it away to continue");
    assert_int_equal(rename(text, away), 0);
    must_resume(run_folder("changed"), 4, 1, NULL);
    assert_int_equal(rename(away, text), 0);

    /* Without the cache only the error is left. */
    assert_int_equal(unlink(tiny_path(run_folder("changed"), "data.cache")), 0);
    must_fail(NULL, (dsmoe_run_options){.resume = run_folder("changed")}, DSMOE_ERROR_FORMAT,
              "have changed since this run began");
    assert_int_equal(unlink(file), 0);
    append(file, bytes, size);
    free(bytes);
    must_resume(run_folder("changed"), 0, 1, NULL);
    assert_same_end("straight", "changed");
    tiny_remove(run_folder("changed"));
}

/* ---- what is learned from -------------------------------------------------------------------- */

static void test_left_out(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "some");
    char binary[TINY_PATH];
    copy_path(binary, directory, "text/picture");
    append(binary, "\0\1\2", 3);
    witness w = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, "1 of 3 files left out (3 bytes): 1 not text"));
    assert_non_null(strstr(w.message, binary));
    size_t size;
    char *lines = tiny_read(tiny_path(run_folder("some"), "metrics.jsonl"), &size);
    assert_non_null(strstr(lines, "\"n_bytes_left_out\":3,\"n_bad_bytes\":0"));
    free(lines);
    assert_same_end("straight", "some");
    tiny_remove(run_folder("some"));
    snprintf(s.bad_bytes, sizeof s.bad_bytes, "drop");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_CONFIG, "bad_bytes is 'drop'");
    assert_int_equal(unlink(binary), 0);
}

/* Tokens made by another tokenizer cannot be mixed with text for which a tokenizer is trained. */
static void test_shards_beside_text(void **state)
{
    (void)state;
    int32_t tokens[300];
    for (int i = 0; i < 300; i++) tokens[i] = i * 7 % 250;
    char shard[TINY_PATH], tokenizer[TINY_PATH];
    copy_path(shard, directory, "more.bin");
    copy_path(tokenizer, run_folder("straight"), "tokenizer.json");
    unsigned char bytes[TOKEN_SHARD_HEADER_SIZE + 300 * 2];
    token_shard_fill_header(bytes, 2, 300);
    token_shard_pack(tokens, 300, 2, bytes + TOKEN_SHARD_HEADER_SIZE);
    write_to(shard, bytes, sizeof bytes);
    dsmoe_run_settings s = tiny_settings(directory, "both");
    snprintf(s.data[1], sizeof s.data[1], "%s", shard);
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_FORMAT, "more.bin");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_FORMAT, "give that tokenizer");
    tiny_remove(run_folder("both"));
    snprintf(s.tokenizer, sizeof s.tokenizer, "%s", tokenizer);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    tiny_remove(run_folder("both"));
    assert_int_equal(unlink(shard), 0);
}

/* The tokenizer of a run is the same as one trained on the text without the held-out part. */
static void test_tokenizer_of_a_run(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "straight");
    const char *given = s.data[0];
    dsmoe_tokenizer_train_options o = {.paths = &given,
                                       .n_paths = 1,
                                       .vocab_size = s.vocab_size,
                                       .held_out = s.held_out,
                                       .n_threads = 1};
    char folder[TINY_PATH], mine[TINY_PATH], its[TINY_PATH];
    copy_path(folder, directory, "alone");
    assert_int_equal(dsmoe_tokenizer_train(&o, folder, NULL, NULL, NULL), DSMOE_OK);
    copy_path(mine, folder, "tokenizer.json");
    copy_path(its, run_folder("straight"), "tokenizer.json");
    tiny_assert_same(mine, its);
    tiny_remove(folder);
}

/* A start that was killed before the settings were written left an empty folder of checkpoints. That is no
 * run, and the tokenizer is trained again. */
static void test_start_again(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "again");
    assert_int_equal(mkdir(run_folder("again"), 0777), 0);
    assert_int_equal(mkdir(tiny_path(run_folder("again"), "checkpoints"), 0777), 0);
    append(tiny_path(run_folder("again"), ".preparing"), "", 0);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_same_end("straight", "again");
    tiny_remove(run_folder("again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_gone),       cmocka_unit_test(test_text_was_never_there),
        cmocka_unit_test(test_text_changed),       cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_shards_beside_text), cmocka_unit_test(test_tokenizer_of_a_run),
        cmocka_unit_test(test_start_again),        cmocka_unit_test(test_text_is_empty),
        cmocka_unit_test(test_text_is_renamed),    cmocka_unit_test(test_older_split),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}

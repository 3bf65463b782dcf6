/* test_data_cache.c - the cache of tokens: used while it is valid, made again when anything it was made
 * from has changed or the file is damaged, and never left incomplete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "base/hash.h"
#include "data_files.h"
#include "scratch.h"
#include "text/tokenizer.h"
#include "train/data_cache.h"
#include "train/tokenizer_hash.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Does not wait for the disk: these tests make a thousand files. */
int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

/* ---- helpers -------------------------------------------------------------------------------- */

/* Opens and closes the data; returns its hash. */
static uint64_t open_and_see(const dsmoe_dataset_options *options, bool built)
{
    dsmoe_dataset *data = open_data(options);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    if (info.cache_built != built) fail_msg("the cache was%s built", built ? " not" : "");
    dsmoe_dataset_free(data);
    return info.hash;
}

/* A tokenizer for a, b, c and space. `more` members and merges are written with ' for ". */
static dsmoe_tokenizer *tiny_tokenizer(const char *more, const char *merge_list)
{
    char json[2048];
    snprintf(
        json, sizeof json,
        "{%s'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'\xc4\xa0':3,'ab':4,'bc':5,'\xc4\x8a'"
        ":6,'A':7,'\xc3\x85':8,'\xcc\x8a':9,'\xc3\xaf':10,'\xc2\xbf':11,'\xc2\xbd':12,'\xc4\xa0\xc4\xa0':14},'merges':"
        "[%s]}}",
        more, merge_list);
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    tokenizer_text text = {json, strlen(json), "tiny"};
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error = {0};
    if (tokenizer_parse(&text, NULL, &tokenizer, &error) != DSMOE_OK) fail_msg("%s", error.message);
    return tokenizer;
}

/* ---- used or made again ---------------------------------------------------------------------- */

static void test_used_again(void **state)
{
    (void)state;
    make_folder("d");
    write_text("d/a.txt", "some text of a");
    write_text("d/b.txt", "some text of b");
    dsmoe_dataset_options o = options_for("d");
    uint64_t hash = open_and_see(&o, true);
    assert_int_equal(open_and_see(&o, false), hash);
    o.n_threads = 3;
    o.seed = 9;
    assert_int_equal(open_and_see(&o, false), hash);
    /* A changed time or folder does not matter: only the content counts. */
    struct utimbuf times = {1000000000, 1000000000};
    assert_int_equal(utime(in_directory("d/a.txt"), &times), 0);
    assert_int_equal(open_and_see(&o, false), hash);
    assert_int_equal(rename(in_directory("d"), in_directory("e")), 0);
    o = options_for("e");
    assert_int_equal(open_and_see(&o, false), hash);
    /* Other sequences from the same tokens need no new cache, but are other data. */
    o.sequence_length = 5;
    uint64_t other = open_and_see(&o, false);
    assert_int_not_equal(other, hash);
    o.held_out = 0.4; /* held-out text comes after the rest */
    assert_int_not_equal(open_and_see(&o, true), other);
    open_and_see(&o, false);
}

static void test_made_anew(void **state)
{
    (void)state;
    make_folder("d");
    write_text("d/a.txt", "some text of a");
    write_text("d/b.txt", "some text of b");
    dsmoe_dataset_options o = options_for("d");
    uint64_t hash = open_and_see(&o, true), other;
    write_text("d/a.txt", "some text of A"); /* the same length */
    assert_int_not_equal(open_and_see(&o, true), hash);
    write_text("d/a.txt", "some text of a");
    assert_int_equal(open_and_see(&o, true), hash);
    write_text("d/c.txt", "c");
    other = open_and_see(&o, true);
    assert_int_not_equal(other, hash);
    assert_int_equal(remove(in_directory("d/c.txt")), 0);
    assert_int_equal(open_and_see(&o, true), hash);
    /* The same bytes, divided differently among files. */
    write_text("d/a.txt", "some text of");
    write_text("d/b.txt", " asome text of b");
    assert_int_not_equal(open_and_see(&o, true), hash);
    write_text("d/a.txt", "some text of a");
    write_text("d/b.txt", "some text of b");
    assert_int_equal(open_and_see(&o, true), hash);
    /* With other names of kinds the cache is made again, but tokens and hash are the same. */
    assert_int_equal(rename(in_directory("d/b.txt"), in_directory("d/bb.txt")), 0);
    assert_int_equal(open_and_see(&o, true), hash);
    o.vocab_size++;
    assert_int_equal(open_and_see(&o, true), hash);
    o.vocab_size = 70000; /* tokens of four bytes */
    open_and_see(&o, true);
    open_and_see(&o, false);
}

/* R03: other tokens at the same path, of the same size. */
static void test_shard_replaced(void **state)
{
    (void)state;
    static const uint32_t one[] = {1, 2, 3, 4, 5}, two[] = {1, 2, 3, 5, 4};
    write_shard("s.bin", 20240520, 1, 5, one, 5, 2);
    dsmoe_dataset_options o = options_for("s.bin");
    uint64_t hash = open_and_see(&o, true);
    assert_cached("1 2 3 4 5");
    write_shard("s.bin", 20240520, 1, 5, two, 5, 2);
    assert_int_not_equal(open_and_see(&o, true), hash);
    assert_cached("1 2 3 5 4");
}

static void test_other_tokenizer(void **state)
{
    (void)state;
    static const char pre[] = "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,"
                              "'use_regex':false},";
    static const struct {
        const char *more, *merges;
    } cases[] = {
        {"", "'a b','b c'"},
        {"", "'b c','a b'"}, /* the same merges, another order */
        {"", "'a b'"},
        {"'normalizer':{'type':'Lowercase'},", "'a b','b c'"},
        {"'normalizer':{'type':'NFC'},", "'a b','b c'"},
        {"'added_tokens':[{'id':13,'content':'zz','special':false}],", "'a b','b c'"},
        {"'added_tokens':[{'id':13,'content':'zz','special':true}],", "'a b','b c'"},
        {"'added_tokens':[{'id':13,'content':'</s>','special':true}],", "'a b','b c'"},
        {"'added_tokens':[{'id':13,'content':'zz','special':false,'lstrip':true}],", "'a b','b c'"},
    };
    uint64_t hashes[COUNT(cases)];
    write_text("t.txt", "abc abc\nabc");
    for (size_t i = 0; i < COUNT(cases); i++) {
        char more[512];
        snprintf(more, sizeof more, "%s%s", pre, cases[i].more);
        dsmoe_tokenizer *tokenizer = tiny_tokenizer(more, cases[i].merges);
        dsmoe_tokenizer *twin = tiny_tokenizer(more, cases[i].merges);
        uint64_t again;
        assert_int_equal(tokenizer_hash(tokenizer, HASH_XXH64, &hashes[i], NULL), DSMOE_OK);
        assert_int_equal(tokenizer_hash(twin, HASH_XXH64, &again, NULL), DSMOE_OK);
        assert_int_equal(hashes[i], again);
        for (size_t j = 0; j < i; j++)
            if (hashes[j] == hashes[i]) fail_msg("tokenizers %zu and %zu look the same", j, i);
        dsmoe_dataset_options o = options_for("t.txt");
        o.tokenizer = tokenizer;
        o.sequence_length = 1;
        open_and_see(&o, true);
        o.tokenizer = twin;
        open_and_see(&o, false);
        dsmoe_tokenizer_free(tokenizer);
        dsmoe_tokenizer_free(twin);
    }
}

/* The rules for splitting text differ, though all tables are the same. */
static void test_other_pre_tokenizer(void **state)
{
    (void)state;
    static const char *const rules[] = {"'use_regex':true,'add_prefix_space':false",
                                        "'use_regex':false,'add_prefix_space':false",
                                        "'use_regex':true,'add_prefix_space':true"};
    uint64_t hashes[COUNT(rules)];
    for (size_t i = 0; i < COUNT(rules); i++) {
        char more[512];
        snprintf(more, sizeof more, "'pre_tokenizer':{'type':'ByteLevel',%s},", rules[i]);
        dsmoe_tokenizer *tokenizer = tiny_tokenizer(more, "'a b','\xc4\xa0 \xc4\xa0'");
        assert_int_equal(tokenizer_hash(tokenizer, HASH_XXH64, &hashes[i], NULL), DSMOE_OK);
        dsmoe_tokenizer_free(tokenizer);
        for (size_t j = 0; j < i; j++) assert_int_not_equal(hashes[j], hashes[i]);
    }
}

/* ---- damage --------------------------------------------------------------------------------- */

static unsigned char *good;
static size_t good_size;

/* The next opening replaces a bad file by the right one. */
static void assert_mended(const dsmoe_dataset_options *o, uint64_t hash)
{
    size_t size;
    assert_int_equal(open_and_see(o, true), hash);
    unsigned char *now = read_data("data.cache", &size);
    assert_int_equal(size, good_size);
    assert_memory_equal(now, good, size);
    free(now);
}

static void test_damaged_files(void **state)
{
    (void)state;
    make_folder("d");
    write_text("d/a.txt", "some text of a");
    write_text("d/b.txt", "some text of b");
    dsmoe_dataset_options o = options_for("d");
    uint64_t hash = open_and_see(&o, true);
    good = read_data("data.cache", &good_size);
    unsigned char *bad = malloc(good_size + 1);
    assert_non_null(bad);
    for (size_t cut = 0; cut < good_size; cut += cut < 40 || cut >= 1000 ? 1 : 120) {
        write_data("data.cache", good, cut);
        assert_mended(&o, hash);
    }
    for (size_t at = 0; at<good_size; at += at> 200 && at < 980 ? 31 : 1) {
        memcpy(bad, good, good_size);
        bad[at] ^= (unsigned char)(1 << at % 8);
        write_data("data.cache", bad, good_size);
        assert_mended(&o, hash);
    }
    memcpy(bad, good, good_size);
    bad[good_size] = 0;
    write_data("data.cache", bad, good_size + 1); /* longer than the header says */
    assert_mended(&o, hash);
    free(bad);
    free(good);
}

/* Writes a file with `bytes` at an offset and correct hashes, so that only the content is impossible. */
static void write_lie(size_t at, const void *bytes, size_t size)
{
    /* Offsets in the file: token hash, list hash and header hash. */
    enum { TOKEN_HASH = 64 + 10 * 8, LIST_HASH = 64 + 11 * 8, HEADER_HASH = 1016 };
    unsigned char *lie = malloc(good_size);
    assert_non_null(lie);
    memcpy(lie, good, good_size);
    memcpy(lie + at, bytes, size);
    int32_t count;
    memcpy(&count, lie + 8, sizeof count);
    size_t token_bytes = count > 0 && 1024 + 2 * (size_t)count <= good_size ? 2 * (size_t)count : 0;
    uint64_t hash = hash_bytes(lie + 1024, token_bytes, 0);
    memcpy(lie + TOKEN_HASH, &hash, sizeof hash);
    hash = hash_bytes(lie + 1024 + token_bytes, good_size - 1024 - token_bytes, 0);
    memcpy(lie + LIST_HASH, &hash, sizeof hash);
    hash = hash_bytes(lie, HEADER_HASH, 0);
    memcpy(lie + HEADER_HASH, &hash, sizeof hash);
    write_data("data.cache", lie, good_size);
    free(lie);
}

static void test_lying_files(void **state)
{
    (void)state;
    make_folder("d");
    write_text("d/a.txt", "text of a");
    write_text("d/b.txt", "text of b");
    dsmoe_dataset_options o = options_for("d");
    uint64_t hash = open_and_see(&o, true);
    good = read_data("data.cache", &good_size);
    size_t list = 1024 + 2 * 22; /* two texts of nine bytes, each with BOS and EOS */
    write_lie(0, good, 0);
    assert_int_equal(open_and_see(&o, false), hash); /* nothing changed: checks this test itself */
    static const uint16_t token = SMALL_VOCAB;
    write_lie(1024 + 6, &token, sizeof token);
    assert_mended(&o, hash);
    static const int32_t counts[] = {0, -1, 1, 19, 21, 24, 1000, INT32_MAX};
    for (size_t i = 0; i < COUNT(counts); i++) {
        write_lie(8, &counts[i], sizeof counts[i]);
        assert_mended(&o, hash);
    }
    static const uint64_t numbers[] = {0, 1, 3, 21, 1000, UINT64_MAX, UINT64_MAX / 8 + 1};
    for (size_t field = 0; field < 10; field++)
        for (size_t i = 0; i < COUNT(numbers); i++) {
            bool bytes_or_documents = field == 5 || field == 6; /* any number may be right */
            if (bytes_or_documents && numbers[i] <= INT64_MAX) continue;
            if (field == 3 && numbers[i] == 0) continue; /* 0 may be right */
            write_lie(64 + field * 8, &numbers[i], sizeof numbers[i]);
            assert_mended(&o, hash);
        }
    static const uint32_t ranges[][4] = {
        {10, 0, 20, 2},          /* no such kind */
        {10, 0, 20, 0xffffffff}, /* nor that one */
        {10, 0, 10, 1},          /* an empty range */
        {0, 0, 20, 1},           /* another one */
        {10, 0, 19, 1},          /* ends too soon */
        {10, 0, 21, 1},          /* too late */
        {20, 0, 10, 1},          /* goes back */
    };
    for (size_t i = 0; i < COUNT(ranges); i++) {
        write_lie(list, ranges[i], sizeof ranges[i]);
        assert_mended(&o, hash);
    }
    write_lie(good_size - 1, "x", 1); /* the last name has no end */
    assert_mended(&o, hash);
    free(good);
}

static void test_odd_files_in_its_place(void **state)
{
    (void)state;
    write_text("t.txt", "some text");
    dsmoe_dataset_options o = options_for("t.txt");
    uint64_t hash = open_and_see(&o, true);
    assert_int_equal(remove(in_directory("data.cache")), 0);
    assert_int_equal(mkfifo(in_directory("data.cache"), 0600), 0);
    assert_int_equal(open_and_see(&o, true), hash);
    assert_int_equal(remove(in_directory("data.cache")), 0);
    write_text("precious", "not ours");
    assert_int_equal(symlink("precious", in_directory("data.cache")), 0);
    assert_int_equal(open_and_see(&o, true), hash);
    size_t size;
    unsigned char *kept = read_data("precious", &size);
    assert_memory_equal(kept, "not ours", 8);
    free(kept);
    assert_int_equal(open_and_see(&o, false), hash);
    assert_int_equal(remove(in_directory("data.cache")), 0);
    make_folder("data.cache");
    assert_data_refused(&o, DSMOE_ERROR_IO, "data.cache", "");
}

/* ---- complete or absent --------------------------------------------------------------------- */

static void write_long_text(void)
{
    enum { SIZE = 400000 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (int i = 0; i < SIZE; i++) text[i] = i % 40 == 39 ? '\n' : (char)('a' + i % 40 % 26);
    write_data("long.txt", text, SIZE);
    free(text);
}

static void test_full_disk(void **state)
{
    (void)state;
    write_long_text();
    dsmoe_dataset_options o = options_for("long.txt");
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    static const rlim_t limits[] = {1, 1023, 1024, 5000, 140000, 700000};
    for (size_t i = 0; i < COUNT(limits); i++) {
        small = before;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        dsmoe_dataset *data;
        dsmoe_error error = {0};
        dsmoe_status status = dsmoe_dataset_open(&o, NULL, NULL, &data, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (status != DSMOE_ERROR_IO) fail_msg("%d bytes: %s", (int)limits[i], error.message);
        assert_non_null(strstr(error.message, "data.cache: cannot write"));
        assert_null(data);
        assert_false(exists("data.cache"));
        assert_false(exists("data.cache.partial"));
    }
    signal(SIGXFSZ, handler);
    open_and_see(&o, true);
}

typedef struct progress_log {
    double done, total;
    int n, stop_at;
} progress_log;

static bool log_progress(void *context, double done, double total)
{
    progress_log *log = context;
    assert_true(done >= log->done && done <= total && total > 0);
    assert_true(log->n == 0 || total == log->total);
    log->done = done;
    log->total = total;
    return ++log->n != log->stop_at;
}

static void test_progress_and_stopping(void **state)
{
    (void)state;
    make_folder("d");
    write_long_text();
    assert_int_equal(rename(in_directory("long.txt"), in_directory("d/long.txt")), 0);
    write_text("d/a.jsonl", "{\"text\":\"one\"}\n\n{\"instruction\":\"\",\"output\":\"two\"}\n");
    static const uint32_t tokens[] = {1, 2, 3};
    write_shard("d/m.bin", 20240520, 1, 3, tokens, 3, 2);
    write_text("d/z.txt", "the end");
    dsmoe_dataset_options o = options_for("d");
    progress_log log = {0};
    dsmoe_dataset *data;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_dataset_open(&o, log_progress, &log, &data, NULL), DSMOE_OK);
    assert_true(log.done == log.total && log.n > 4);
    dsmoe_dataset_free(data);
    assert_int_equal(remove(in_directory("data.cache")), 0);
    for (int stop = 1; stop <= log.n; stop++) {
        progress_log again = {.stop_at = stop};
        assert_int_equal(dsmoe_dataset_open(&o, log_progress, &again, &data, &error),
                         DSMOE_ERROR_STOPPED);
        assert_string_equal(error.message, "stopped");
        assert_int_equal(again.n, stop);
        assert_null(data);
        assert_false(exists("data.cache"));
        assert_false(exists("data.cache.partial"));
    }
}

static bool change_text(void *context, double done, double total)
{
    (void)context;
    if (done > 0 && done < total) write_text("b.txt", "Other text");
    return true;
}

/* If a file is written to while it is read, no cache is made. */
static void test_text_changes_meanwhile(void **state)
{
    (void)state;
    write_long_text();
    write_text("b.txt", "other text");
    const char *const given[] = {in_directory("long.txt"), in_directory("b.txt")};
    dsmoe_dataset_options o = options_for("b.txt");
    o.paths = given;
    o.n_paths = 2;
    o.held_out = 0.1;
    dsmoe_dataset *data;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_dataset_open(&o, change_text, NULL, &data, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "changed while it was read"));
    assert_false(exists("data.cache"));
    assert_false(exists("data.cache.partial"));
}

/* The limit of the public format, tested without writing that many tokens. */
static void test_too_many_tokens(void **state)
{
    (void)state;
    data_cache_writer w;
    static const int32_t tokens[3] = {1, 2, 3};
    dsmoe_error error = {0};
    assert_int_equal(data_cache_create(&w, in_directory("data.cache"), 10, NULL), DSMOE_OK);
    w.n_tokens = INT32_MAX - 2;
    assert_int_equal(data_cache_append(&w, tokens, 2, 0, NULL), DSMOE_OK);
    assert_int_equal(data_cache_append(&w, tokens, 1, 0, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "more than 2147483647 tokens"));
    data_cache_abandon(&w);
    data_cache_abandon(&w);
    assert_false(exists("data.cache.partial"));
}

/* The start of the file is the header of a public shard. */
static void test_public_header(void **state)
{
    (void)state;
    write_text("t.txt", "some text");
    dsmoe_dataset_options o = options_for("t.txt");
    open_and_see(&o, true);
    size_t size;
    unsigned char *bytes = read_data("data.cache", &size);
    int32_t fields[3];
    memcpy(fields, bytes, sizeof fields);
    assert_int_equal(fields[0], 20240520);
    assert_int_equal(fields[1], 1);
    assert_int_equal(fields[2], 11);
    assert_int_equal(bytes[1026], 's'); /* after BOS; every token takes two bytes */
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)
    const struct CMUnitTest tests[] = {
        TEST(test_used_again),
        TEST(test_made_anew),
        TEST(test_shard_replaced),
        TEST(test_other_tokenizer),
        TEST(test_other_pre_tokenizer),
        TEST(test_damaged_files),
        TEST(test_lying_files),
        TEST(test_odd_files_in_its_place),
        TEST(test_full_disk),
        TEST(test_progress_and_stopping),
        TEST(test_text_changes_meanwhile),
        TEST(test_too_many_tokens),
        TEST(test_public_header),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}

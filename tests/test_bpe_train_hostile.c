/* test_bpe_train_hostile.c - training a tokenizer on data that is too large, too small or not text, and
 * stopping it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "text/bpe_train.h"
#include "text/train_count.h"
#include "train_text.h"

/* ---- how much text is counted ---------------------------------------------------------------- */

/* The number of bytes in all words that are counted. */
static int64_t count_bytes(const char *name, double max_bytes)
{
    const char *source = in_directory(name);
    document_list list;
    pre_tokenizer pre = {0};
    train_words words = {0};
    int64_t n_bytes, n_counted = 0;
    read_pre_tokenizer(train_pre_tokenizer, strlen(train_pre_tokenizer), &pre);
    train_count_options options = {.pre = &pre, .max_bytes = max_bytes, .n_threads = 2};
    assert_int_equal(document_list_open(&source, 1, DSMOE_BAD_BYTES_REPLACE, &list, NULL),
                     DSMOE_OK);
    assert_int_equal(train_count(&list, &options, &words, &n_bytes, NULL), DSMOE_OK);
    for (size_t i = 0; i < words.count; i++)
        n_counted += words.words[i].count * words.words[i].length;
    assert_int_equal(n_counted, n_bytes);
    train_words_free(&words);
    pre_tokenizer_free(&pre);
    document_list_close(&list);
    return n_counted;
}

static void test_max_bytes_is_even(void **state)
{
    (void)state;
    static char text[200000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 8 == 7 ? '\n' : i < sizeof text / 2 ? 'a' : 'z';
    make_folder("data");
    write_data("data/one", text, sizeof text);
    write_data("data/two", "neverrecurs", 11);
    dsmoe_tokenizer_train_options options = options_of("data", 264, 2);
    options.max_bytes = 20000;
    dsmoe_error error = {0};
    if (dsmoe_tokenizer_train(&options, in_directory("out"), NULL, NULL, &error))
        fail_msg("%s", error.message);
    dsmoe_tokenizer *tokenizer = open_trained("out");
    assert_true(count_ids(tokenizer, "aaaa", 4) < 4); /* training saw both halves */
    assert_true(count_ids(tokenizer, "zzzz", 4) < 4);
    dsmoe_tokenizer_free(tokenizer);
    assert_in_range(count_bytes("data", 20000), 19000, 20000);
}

/* Several batches: no byte is lost or counted twice. */
static void test_all_bytes_count(void **state)
{
    (void)state;
    const size_t n = 9 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) text[i] = i % 97 == 96 ? '\n' : (char)('a' + i % 7);
    write_data("text", text, n);
    free(text);
    assert_int_equal(count_bytes("text", 1e9), n);
    assert_in_range(count_bytes("text", 5e6), 4900000, 5000000);
}

/* A word that is too long is cut and counts as several words, in time proportional to its length. */
static void test_huge_words(void **state)
{
    (void)state;
    static char text[1 << 20];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + random_below(20));
    make_folder("data");
    write_data("data/letters", text, sizeof text);
    memset(text, '=', sizeof text);
    write_data("data/ruler", text, sizeof text);
    for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "你", 3);
    write_data("data/no-spaces", text, sizeof text / 3 * 3);
    train("data", 2000, 2, "out");
    dsmoe_tokenizer *tokenizer = open_trained("out");
    size_t longest = 0, length;
    for (int32_t id = 0; id < 1998; id++) {
        const char *piece = dsmoe_tokenizer_piece(tokenizer, id, &length);
        if (length > longest) longest = length;
        assert_true(length < 8 || piece[0] == '=' || !strncmp(piece, "你", 3));
    }
    assert_int_equal(longest, TRAIN_WORD_MAX);
    dsmoe_tokenizer_free(tokenizer);
}

/* Texts of JSON Lines files are learned from like those of text files. */
static void test_json_lines(void **state)
{
    (void)state;
    char *text = make_prose(20000);
    make_folder("data");
    FILE *lines = fopen(in_directory("lines.jsonl"), "w");
    assert_non_null(lines);
    for (size_t i = 0, n = 0, at = 0; i < 20000; i++) {
        if (text[i] != '\n' && i < 19999) continue;
        char name[32];
        snprintf(name, sizeof name, "data/%05zu", n++);
        write_data(name, text + at, i + 1 - at);
        fputs("{\"kind\": 1, \"text\": \"", lines);
        for (; at <= i; at++)
            fprintf(lines, text[at] < 0x20 && text[at] >= 0 ? "\\u%04x" : "%c", text[at]);
        fputs("\"}\n", lines);
    }
    fclose(lines);
    train("data", 512, 2, "one");
    train("lines.jsonl", 512, 3, "two");
    assert_same_files("one/tokenizer.json", "two/tokenizer.json");
    free(text);
}

/* ---- refused arguments ----------------------------------------------------------------------- */

static void assert_refused(const dsmoe_tokenizer_train_options *options, const char *folder,
                           dsmoe_status status, const char *says)
{
    dsmoe_error error = {0};
    dsmoe_status found = dsmoe_tokenizer_train(options, in_directory(folder), NULL, NULL, &error);
    if (found != status) fail_msg("status %d: %s", found, error.message);
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
    assert_false(exists(folder));
}

static void test_too_little_text(void **state)
{
    (void)state;
    write_text("text", "abcd abcd\n");
    dsmoe_tokenizer_train_options options = options_of("text", 8192, 1);
    assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT,
                   "10 bytes of text allow 261 tokens at most");
    assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT, "not 8192");
    train("text", 0, 1, "out"); /* with 0, fewer tokens are accepted */
    dsmoe_tokenizer *small = open_trained("out");
    assert_int_equal(dsmoe_tokenizer_size(small), 261);
    dsmoe_tokenizer_free(small);
    train("text", 261, 1, "out");
    train("text", 258, 1, "out"); /* the existing tokenizer is replaced */
    dsmoe_tokenizer *tokenizer = open_trained("out");
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), 258);
    assert_int_equal(count_ids(tokenizer, "abcd", 4), 4);
    dsmoe_tokenizer_free(tokenizer);
}

static void test_bad_input(void **state)
{
    (void)state;
    static const uint32_t shard[] = {1, 2, 3};
    write_text("text", "abab abab\n");
    write_data("garbage", "a\xff\x00\x01", 4);
    write_data("empty", "", 0);
    write_text("bad.jsonl", "{\"text\": 5}\n");
    write_shard("tokens.bin", 20240520, 1, 3, shard, 3, 2);
    static const char *const names[] = {"garbage", "empty", "bad.jsonl", "tokens.bin", "nowhere"};
    for (int i = 0; i < 5; i++) {
        dsmoe_tokenizer_train_options options = options_of(names[i], 260, 1);
        dsmoe_status status = i == 4 ? DSMOE_ERROR_IO : DSMOE_ERROR_FORMAT;
        assert_refused(&options, "out", status, names[i]);
    }
    static const int64_t sizes[] = {-1, 1, 257, (1 << 20) + 1, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 6; i++) {
        dsmoe_tokenizer_train_options options = options_of("text", sizes[i], 1);
        assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT, "vocab_size");
    }
    dsmoe_tokenizer_train_options options = options_of("text", 259, -1);
    assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT, "threads");
    options = options_of("text", 259, 1);
    options.max_bytes = -1;
    assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT, "max_bytes");
    options.max_bytes = 1;
    assert_refused(&options, "out", DSMOE_ERROR_FORMAT, "no text");
    options.n_paths = 0;
    assert_refused(&options, "out", DSMOE_ERROR_ARGUMENT, "no text");
    options = options_of("text", 259, 1);
    assert_int_equal(dsmoe_tokenizer_train(&options, "", NULL, NULL, NULL), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_tokenizer_train(&options, in_directory("text"), NULL, NULL, NULL),
                     DSMOE_ERROR_IO);
}

static void assert_not_replaced(const dsmoe_tokenizer_train_options *options, const char *says)
{
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_tokenizer_train(options, in_directory("out"), NULL, NULL, &error),
                     DSMOE_ERROR_IO);
    if (!strstr(error.message, says)) fail_msg("'%s' does not say '%s'", error.message, says);
}

/* A tokenizer is replaced only on request, and the tokenizer of a run or a model never. */
static void test_nothing_is_replaced(void **state)
{
    (void)state;
    write_text("text", "abab abab\n");
    make_folder("out");
    dsmoe_tokenizer_train_options options = options_of("text", 259, 1);
    options.replace = false;
    static const char *const its[] = {"tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "out/%s", its[i]);
        write_text(name, "{}");
        assert_not_replaced(&options, its[i]);
        assert_int_equal(remove(in_directory(name)), 0);
    }
    options.replace = true;
    static const char *const others[] = {"settings.json", "config.json",
                                         "model-00001-of-00002.safetensors", "some.gguf"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "out/%s", others[i]);
        write_text(name, "{}");
        write_text("out/tokenizer.json", "{}");
        assert_not_replaced(&options, others[i]);
        size_t size;
        unsigned char *kept = read_data("out/tokenizer.json", &size);
        assert_int_equal(size, 2);
        free(kept);
        assert_int_equal(remove(in_directory(name)), 0);
    }
    write_text("out/notes.txt", "of somebody else");
    assert_int_equal(remove(in_directory("out/tokenizer.json")), 0);
    write_text("out/config.json", "{}"); /* a run that starts here will read it */
    train("text", 259, 1, "out");
    assert_int_equal(remove(in_directory("out/config.json")), 0);
    options.replace = false;
    assert_not_replaced(&options, "tokenizer");
}

/* ---- stopping -------------------------------------------------------------------------------- */

typedef struct watch {
    int calls, stop_at; /* 0: never */
    int phases;
    double done, total;
} watch;

static bool watch_progress(void *context, double done, double total)
{
    watch *w = context;
    assert_true(done >= 0 && done <= total);
    if (w->calls == 0 || done < w->done) w->phases++;
    if (w->calls > 0 && w->phases == 1) assert_true(total == w->total);
    w->done = done;
    w->total = total;
    return ++w->calls != w->stop_at;
}

static void test_progress_and_stop(void **state)
{
    (void)state;
    char *text = make_prose(30000);
    write_text("text", text);
    free(text);
    dsmoe_tokenizer_train_options options = options_of("text", 300, 2);
    watch all = {0};
    assert_int_equal(
        dsmoe_tokenizer_train(&options, in_directory("whole"), watch_progress, &all, NULL),
        DSMOE_OK);
    assert_int_equal(all.phases, 2);
    assert_true(all.done == 42 && all.total == 42); /* 300 less bytes and special tokens */
    assert_true(all.calls > 42);
    make_folder("old");
    write_text("old/tokenizer.json", "as it was");
    for (int i = 1; i <= all.calls; i++) {
        dsmoe_error error = {0};
        watch w = {.stop_at = i}, again = {.stop_at = i};
        assert_int_equal(
            dsmoe_tokenizer_train(&options, in_directory("out"), watch_progress, &w, &error),
            DSMOE_ERROR_STOPPED);
        assert_non_null(strstr(error.message, "stopped"));
        assert_int_equal(w.calls, i);
        assert_false(exists("out"));
        if (i % 7 == 1) /* an existing folder stays as it was */
            assert_int_equal(
                dsmoe_tokenizer_train(&options, in_directory("old"), watch_progress, &again, NULL),
                DSMOE_ERROR_STOPPED);
    }
    size_t size;
    unsigned char *kept = read_data("old/tokenizer.json", &size);
    assert_int_equal(size, 9);
    assert_memory_equal(kept, "as it was", 9);
    free(kept);
    assert_false(exists("old/tokenizer_config.json"));
}

/* A disk with room for the small file only. */
static void test_full_disk(void **state)
{
    (void)state;
    write_text("text", "abab abab\n");
    dsmoe_tokenizer_train_options options = options_of("text", 259, 1);
    struct rlimit usual, small = {.rlim_cur = 1000};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small.rlim_max = usual.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_tokenizer_train(&options, in_directory("out"), NULL, NULL, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "tokenizer.json"));
    assert_false(exists("out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_max_bytes_is_even),   IN_FOLDER(test_all_bytes_count),
        IN_FOLDER(test_huge_words),          IN_FOLDER(test_json_lines),
        IN_FOLDER(test_too_little_text),     IN_FOLDER(test_bad_input),
        IN_FOLDER(test_progress_and_stop),   IN_FOLDER(test_full_disk),
        IN_FOLDER(test_nothing_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

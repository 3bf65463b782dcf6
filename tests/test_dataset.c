/* test_dataset.c - data to train on: from documents to tokens, from tokens to sequences in random order,
 * and data that cannot be trained on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_files.h"
#include "formats/token_shard.h"
#include "scratch.h"
#include "train/data_build.h"
#include "base/data_order.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- tokens --------------------------------------------------------------------------------- */

static void test_documents_become_tokens(void **state)
{
    (void)state;
    make_folder("d");
    write_text("d/a.txt", "xy");
    write_text("d/b.jsonl", "{\"text\":\"z\"}\n{\"text\":\"<|end|>\"}\n{\"text\":\"\"}\n");
    static const uint32_t tokens[] = {7, 266, 8};
    write_shard("d/c.bin", 20240520, 1, 3, tokens, 3, 2);
    write_shard("d/d.bin", 20240801, 7, 3, tokens, 3, 4);
    write_text("d/e.txt", "w");
    dsmoe_dataset *data = open_name("d");
    /* Texts are between BOS and EOS, the spelling of EOS in them is text, and shards are unchanged. */
    assert_cached("265 120 121 266 265 122 266 265 60 124 101 110 100 124 62 266 7 266 8 7 266 8 "
                  "265 119 266");
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    assert_int_equal(info.n_tokens, 25);
    assert_int_equal(info.n_documents, 6);
    assert_int_equal(info.n_bytes, 2 + 1 + 7 + 1);
    assert_int_equal(info.n_train, 6);
    assert_int_equal(info.n_held_out, 0);
    assert_int_equal(info.sequence_length, 4);
    assert_true(info.cache_built);
    assert_int_equal(info.n_kinds, 5);
    assert_string_equal(dsmoe_dataset_kind_name(data, 0), "a");
    assert_string_equal(dsmoe_dataset_kind_name(data, 4), "e");
    assert_null(dsmoe_dataset_kind_name(data, 5));
    assert_null(dsmoe_dataset_kind_name(data, -1));
    dsmoe_dataset_free(data);
    dsmoe_dataset_free(NULL);
}

static void test_wide_tokens(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {0, 65535, 65536, 99999, 1};
    write_shard("w.bin", 20240801, 7, 5, tokens, 5, 4);
    dsmoe_dataset_options options = options_for("w.bin");
    options.tokenizer = NULL;
    options.vocab_size = 100000;
    dsmoe_dataset *data = open_data(&options);
    int32_t inputs[4], targets[4];
    dsmoe_dataset_train(data, 0, 1, inputs, targets, NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(inputs[i], tokens[i]);
        assert_int_equal(targets[i], tokens[i + 1]);
    }
    dsmoe_dataset_free(data);
}

/* ---- where a text is cut -------------------------------------------------------------------- */

static char *repeated(const char *unit, size_t size)
{
    size_t length = strlen(unit);
    char *text = malloc(size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++) text[i] = unit[i % length];
    text[size] = '\0';
    return text;
}

/* Checks the number of pieces of a text and the bytes around the first cut. */
static void assert_pieces(const char *unit, size_t size, size_t n_pieces, const char *border)
{
    char *text = repeated(unit, size);
    size_t n = 0, at = 0, length, half = strlen(border) / 2;
    for (; at < size; at += length, n++) {
        length = data_piece_length(text + at, size - at);
        assert_true(length >= 1 && length <= size - at && length <= DATA_PIECE_MAX);
        if (n == 0 && n_pieces > 1 && memcmp(text + length - half, border, 2 * half))
            fail_msg("cut at '%.10s' instead of '%s'", text + length - half, border);
    }
    if (n != n_pieces) fail_msg("'%s' is cut into %zu pieces", unit, n);
    free(text);
}

static void test_where_texts_are_cut(void **state)
{
    (void)state;
    assert_pieces("a line\n", DATA_PIECE, 1, "");
    assert_pieces("a line\n", DATA_PIECE + 100, 2, "e\na ");
    assert_pieces("a line\n", 10 * DATA_PIECE, 10, "e\na ");
    assert_pieces("\xe4\xb8\xad\n", 2 * DATA_PIECE + 100, 3, "\xad\n\xe4\xb8");
    /* A cut that could separate mergeable text is avoided if there is a better place: */
    assert_pieces("one \n\n two\r\n\tthree   ", DATA_PIECE_MAX, 1, "");
    assert_pieces("a\xe3\x80\x80\n", DATA_PIECE_MAX, 1, ""); /* a wide space before the end */
    assert_pieces("a\n\xc2\xa0", DATA_PIECE_MAX, 1, "");
    /* but pieces longer than the limit are cut anyway. */
    assert_pieces("dos\r\n", 2 * DATA_PIECE_MAX, 9, "\r\ndo");
    assert_pieces("a word ", 2 * DATA_PIECE_MAX, 9, "rd a");
    assert_pieces("\xe4\xb8\xad", 2 * DATA_PIECE_MAX, 9, "\xb8\xad\xe4\xb8");
}

/* The tokens of a long text are those of the whole text, for any number of threads. */
static void check_long_text(const dsmoe_tokenizer *tokenizer, int64_t vocab_size, const char *unit)
{
    size_t size = 5 * DATA_PIECE / strlen(unit) * strlen(unit), n_ids, cache_size, again_size;
    char *text = repeated(unit, size);
    int32_t *ids;
    write_data("long.txt", text, size);
    assert_int_equal(
        dsmoe_tokenizer_encode(tokenizer, text, size, DSMOE_ENCODE_BOS, &ids, &n_ids, NULL),
        DSMOE_OK);
    unsigned char *first = NULL;
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        dsmoe_dataset_options options = options_for("long.txt");
        options.tokenizer = tokenizer;
        options.vocab_size = vocab_size;
        options.n_threads = n_threads;
        dsmoe_dataset_free(open_data(&options));
        unsigned char *again = read_data("data.cache", &again_size);
        remove(in_directory("data.cache"));
        if (!first) {
            token_shard shard;
            first = again;
            cache_size = again_size;
            assert_int_equal(token_shard_parse_head(first, cache_size, "", &shard, NULL), DSMOE_OK);
            assert_int_equal(shard.n_tokens, n_ids + 1);
            for (size_t i = 0; i < n_ids; i++)
                assert_int_equal(token_shard_token(&shard, i), ids[i]);
            continue;
        }
        assert_int_equal(again_size, cache_size);
        assert_memory_equal(again, first, cache_size);
        free(again);
    }
    free(first);
    free(ids);
    free(text);
}

static void test_long_texts(void **state)
{
    (void)state;
    check_long_text(small_tokenizer(), SMALL_VOCAB,
                    "A line of prose,\nand another one.\n\n  Indented \n\tso\n12345 he said\n");
}

static void test_long_texts_released(void **state)
{
    (void)state;
    dsmoe_tokenizer *released;
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/tokenizer", &released, NULL), DSMOE_OK);
    check_long_text(
        released, 102400,
        "int main(void)\n{\n    return 0;\n}\n\n\xe4\xb8\xad\xe6\x96\x87\n\xe6\xb5\x8b\n"
        "  The end  \n\xc2\xbd cup\xef\xbc\x8c\r\n2024\n");
    dsmoe_tokenizer_free(released);
}

/* Thousands of short documents in many batches keep their order. */
static void test_many_documents(void **state)
{
    (void)state;
    enum { N = 5000 };
    char *lines = malloc(N * 32), *at = lines;
    assert_non_null(lines);
    for (int i = 0; i < N; i++) at += sprintf(at, "{\"text\":\"%d\"}\n", i);
    write_text("many.jsonl", lines);
    dsmoe_dataset_options options = options_for("many.jsonl");
    options.sequence_length = 1;
    options.n_threads = 3;
    dsmoe_dataset *data = open_data(&options);
    assert_int_equal(dsmoe_dataset_get_info(data).n_documents, N);
    size_t size;
    unsigned char *bytes = read_data("data.cache", &size);
    token_shard shard;
    assert_int_equal(token_shard_parse_head(bytes, size, "", &shard, NULL), DSMOE_OK);
    size_t token = 0;
    for (int i = 0; i < N; i++) {
        char digits[16];
        int n = snprintf(digits, sizeof digits, "%d", i);
        assert_int_equal(token_shard_token(&shard, token++), SMALL_BOS);
        for (int k = 0; k < n; k++) assert_int_equal(token_shard_token(&shard, token++), digits[k]);
        assert_int_equal(token_shard_token(&shard, token++), SMALL_EOS);
    }
    assert_int_equal(token, shard.n_tokens);
    free(bytes);
    free(lines);
    dsmoe_dataset_free(data);
}

/* ---- order ---------------------------------------------------------------------------------- */

static void test_orders_are_permutations(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4097};
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (uint64_t number = 0; number < 3; number++) {
            char seen[4097] = {0};
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t at = data_order_at(sizes[s], 7, number, i);
                assert_true(at >= 0 && at < sizes[s] && !seen[at]);
                seen[at] = 1;
            }
        }
    int64_t largest = (int64_t)1 << 31;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t at = data_order_at(largest, 1, 2, largest - 1 - i);
        assert_true(at >= 0 && at < largest);
    }
}

/* Every number comes to every place about equally often. */
static void test_orders_are_even(void **state)
{
    (void)state;
    enum { N = 10, ORDERS = 10000 };
    int counts[N][N] = {{0}};
    for (int number = 0; number < ORDERS; number++)
        for (int i = 0; i < N; i++) counts[i][data_order_at(N, 3, (uint64_t)number, i)]++;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (abs(counts[i][j] - ORDERS / N) > 150) /* five standard deviations */
                fail_msg("%d comes to place %d in %d of %d orders", j, i, counts[i][j], ORDERS);
}

/* ---- sequences ------------------------------------------------------------------------------ */

enum { N_TOKENS = 1003, LENGTH = 10, N_WINDOWS = 100 };

/* A shard whose tokens count up: the first token of a window tells which one it is. */
static dsmoe_dataset *open_numbers(uint64_t seed, double held_out)
{
    uint32_t tokens[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++) tokens[i] = i;
    write_shard("numbers.bin", 20240520, 1, N_TOKENS, tokens, N_TOKENS, 2);
    dsmoe_dataset_options options = options_for("numbers.bin");
    options.tokenizer = NULL;
    options.vocab_size = N_TOKENS;
    options.sequence_length = LENGTH;
    options.held_out = held_out;
    options.seed = seed;
    return open_data(&options);
}

/* The index of a window, where windows start at token `first`; the window must be complete. */
static int window_of(int first, const int32_t *tokens, const int32_t *targets)
{
    assert_int_equal((tokens[0] - first) % LENGTH, 0);
    for (int i = 0; i < LENGTH; i++) {
        assert_int_equal(tokens[i], tokens[0] + i);
        assert_int_equal(targets[i], tokens[0] + i + 1);
    }
    return (tokens[0] - first) / LENGTH;
}

static void test_epochs(void **state)
{
    (void)state;
    dsmoe_dataset *data = open_numbers(5, 0.2);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    assert_int_equal(info.n_tokens_held_out, 200); /* the last ones */
    assert_int_equal(info.n_held_out, 19);
    assert_int_equal(info.n_train, 80);
    bool held[N_WINDOWS] = {false};
    int32_t tokens[20 * LENGTH], targets[20 * LENGTH];
    int kinds[20];
    assert_int_equal(dsmoe_dataset_held_out(data, 0, 19, tokens, targets, NULL, kinds), 19);
    for (int i = 0; i < 19; i++) {
        int window = window_of(N_TOKENS - 200, tokens + i * LENGTH, targets + i * LENGTH);
        assert_true(window < 19 && !held[window]);
        held[window] = true;
        assert_int_equal(kinds[i], 0);
    }
    int order[3][80], n_same = 0, n_in_order = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[N_WINDOWS] = {false};
        for (int i = 0; i < 80; i++) {
            dsmoe_dataset_train(data, epoch * 80 + i, 1, tokens, targets, NULL);
            int window = order[epoch][i] = window_of(0, tokens, targets);
            assert_true(window < 80 && !seen[window]);
            seen[window] = true;
            n_same += epoch > 0 && order[epoch - 1][i] == window;
            n_in_order += i > 0 && order[epoch][i - 1] + 1 == window;
        }
    }
    assert_true(n_same < 12 && n_in_order < 15); /* about 2 and 3 */
    /* Several in one call, across the end of an epoch. */
    dsmoe_dataset_train(data, 73, 20, tokens, targets, NULL);
    for (int i = 0; i < 20; i++)
        assert_int_equal(window_of(0, tokens + i * LENGTH, targets + i * LENGTH),
                         i < 7 ? order[0][73 + i] : order[1][i - 7]);
    dsmoe_dataset_train(data, (int64_t)1 << 40, 1, tokens, targets, NULL); /* far beyond any run */
    window_of(0, tokens, targets);
    dsmoe_dataset_free(data);
}

static void test_seeds(void **state)
{
    (void)state;
    dsmoe_dataset *a = open_numbers(1, 0.1), *b = open_numbers(2, 0.1), *c = open_numbers(1, 0.1);
    int32_t tokens[3][90 * LENGTH], targets[90 * LENGTH];
    assert_int_equal(dsmoe_dataset_held_out(a, 0, 9, tokens[0], targets, NULL, NULL), 9);
    assert_int_equal(dsmoe_dataset_held_out(b, 0, 9, tokens[1], targets, NULL, NULL), 9);
    assert_memory_equal(tokens[0], tokens[1], 9 * LENGTH * sizeof **tokens);
    dsmoe_dataset_train(a, 0, 90, tokens[0], targets, NULL);
    dsmoe_dataset_train(b, 0, 90, tokens[1], targets, NULL);
    dsmoe_dataset_train(c, 0, 90, tokens[2], targets, NULL);
    assert_memory_not_equal(tokens[0], tokens[1], sizeof *tokens);
    assert_memory_equal(tokens[0], tokens[2], sizeof *tokens);
    assert_int_equal(dsmoe_dataset_get_info(a).hash, dsmoe_dataset_get_info(b).hash);
    dsmoe_dataset_free(a);
    dsmoe_dataset_free(b);
    dsmoe_dataset_free(c);
}

static void test_shares(void **state)
{
    (void)state;
    static const struct {
        double held_out;
        int n_train, n;
    } cases[] = {{0, 100, 0}, {0.011, 99, 1}, {0.022, 98, 2}, {0.5, 50, 50}, {0.989, 1, 99}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_dataset *data = open_numbers(0, cases[i].held_out);
        dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
        assert_int_equal(info.n_held_out, cases[i].n);
        assert_int_equal(info.n_train, cases[i].n_train);
        dsmoe_dataset_free(data);
    }
}

/* Whatever is asked for, only existing held-out sequences are returned and nothing is written after
 * them. */
static void test_numbers_out_of_range(void **state)
{
    (void)state;
    dsmoe_dataset *data = open_numbers(0, 0.1); /* 9 sequences are held out */
    int32_t tokens[4 * LENGTH], targets[4 * LENGTH];
    int kinds[4] = {7, 7, 7, 7};
    static const struct {
        int64_t first, n, found;
    } cases[] = {{9, 1, 0}, {8, 4, 1},         {-1, 1, 0},        {0, -1, 0},
                 {1, 0, 0}, {INT64_MAX, 4, 0}, {INT64_MIN, 4, 0}, {7, INT64_MAX, 2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        memset(tokens, 0xff, sizeof tokens);
        memset(targets, 0xff, sizeof targets);
        int64_t found =
            dsmoe_dataset_held_out(data, cases[i].first, cases[i].n, tokens, targets, NULL, kinds);
        assert_int_equal(found, cases[i].found);
        for (int64_t k = 0; k < found * LENGTH; k++) assert_true(tokens[k] >= N_TOKENS - 100);
        for (int64_t k = found * LENGTH; k < 4 * LENGTH; k++)
            assert_true(tokens[k] == -1 && targets[k] == -1);
    }
    assert_int_equal(kinds[2], 7);
    tokens[0] = -1;
    assert_int_equal(dsmoe_dataset_train(data, -1, 1, tokens, targets, NULL), 0);
    assert_int_equal(dsmoe_dataset_train(data, 0, -1, tokens, targets, NULL), 0);
    assert_int_equal(dsmoe_dataset_train(data, INT64_MAX, 1, tokens, targets, NULL), 0);
    assert_int_equal(tokens[0], -1);
    assert_int_equal(dsmoe_dataset_train(data, INT64_MAX - 1, 1, tokens, targets, NULL), 1);
    dsmoe_dataset_free(data);
    data = open_numbers(0, 0);
    assert_int_equal(dsmoe_dataset_held_out(data, 0, 1, tokens, targets, NULL, kinds), 0);
    dsmoe_dataset_free(data);
}

static void test_kinds(void **state)
{
    (void)state;
    make_folder("d");
    make_folder("d/code");
    char a[201], c[401];
    memset(a, 'a', 200);
    memset(c, 'c', 400);
    a[200] = c[400] = '\0';
    write_text("d/code/1.c", a);
    write_text("d/code/2.c", a);
    write_text("d/prose.txt", c);
    dsmoe_dataset_options options = options_for("d");
    options.held_out = 0.5;
    options.sequence_length = 5;
    dsmoe_dataset *data = open_data(&options);
    int n = (int)dsmoe_dataset_get_info(data).n_held_out, kinds[100], n_prose = 0;
    assert_true(n >= 75 && n <= 85);
    int32_t tokens[100 * 5], targets[100 * 5];
    assert_int_equal(dsmoe_dataset_held_out(data, 0, n, tokens, targets, NULL, kinds), n);
    for (int i = 0; i < n; i++) {
        bool is_prose = tokens[i * 5 + 1] == 'c'; /* the first may be BOS or EOS */
        if (targets[i * 5] != 'a' && targets[i * 5] != 'c') continue;
        assert_string_equal(dsmoe_dataset_kind_name(data, kinds[i]), is_prose ? "prose" : "code");
        n_prose += is_prose;
    }
    assert_true(n_prose > 30 && n_prose < 45);
    dsmoe_dataset_free(data);
}

/* ---- data that cannot be trained on --------------------------------------------------------- */

static void test_bad_options(void **state)
{
    (void)state;
    write_text("t.txt", "some text");
    const dsmoe_status bad = DSMOE_ERROR_ARGUMENT;
    dsmoe_dataset_options o = options_for("t.txt");
    o.cache = NULL;
    assert_data_refused(&o, bad, "cache", "");
    o = options_for("t.txt");
    o.n_paths = -1;
    assert_data_refused(&o, bad, "no file", "");
    static const double shares[] = {-0.1, 1, 1.5, NAN, INFINITY};
    for (size_t i = 0; i < COUNT(shares); i++) {
        o = options_for("t.txt");
        o.held_out = shares[i];
        assert_data_refused(&o, bad, "held_out", "");
    }
    static const int64_t lengths[] = {0, -1, INT64_MAX};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        o = options_for("t.txt");
        o.sequence_length = lengths[i];
        assert_data_refused(&o, bad, "sequence_length", "");
        o = options_for("t.txt");
        o.vocab_size = lengths[i];
        assert_data_refused(&o, bad, "vocab_size", "");
    }
    o = options_for("t.txt");
    o.n_threads = -1;
    assert_data_refused(&o, bad, "threads", "");
    o = options_for("t.txt");
    o.vocab_size = SMALL_EOS;
    assert_data_refused(&o, bad, "EOS is id 266", "another model");
    o = options_for("t.txt");
    o.tokenizer = NULL;
    assert_data_refused(&o, bad, "t.txt", "needs a tokenizer");
    o = options_for("t.txt");
    o.cache = in_directory("nowhere");
    assert_data_refused(&o, DSMOE_ERROR_IO, "nowhere/data.cache", "cannot create");
    assert_int_equal(dsmoe_dataset_open(NULL, NULL, NULL, NULL, NULL), bad);
}

static void test_too_little(void **state)
{
    (void)state;
    write_text("t.txt", "ab"); /* 4 tokens with BOS and EOS */
    dsmoe_dataset_options o = options_for("t.txt");
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "4 tokens are left", "needs 5: give more text");
    o.sequence_length = 3;
    dsmoe_dataset_free(open_data(&o));
    o.held_out = 0.01;
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "the text is too short", "hold out less");
    write_text("empty.jsonl", "\n{\"text\":\"\"}\n");
    o = options_for("empty.jsonl");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "empty.jsonl", "no token");
    write_shard("empty.bin", 20240520, 1, 0, NULL, 0, 2);
    o = options_for("empty.bin");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "empty.bin", "no token");
}

static void test_bad_tokens(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {1, 2, 3, 267, 4}, wide[] = {1, 0xffffffffu};
    write_shard("s.bin", 20240520, 1, 5, tokens, 5, 2);
    dsmoe_dataset_options o = options_for("s.bin");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "s.bin: token 3 is id 267", "vocab_size is 267");
    assert_false(exists("data.cache"));
    write_shard("s.bin", 20240801, 7, 2, wide, 2, 4);
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "token 1 is id 4294967295", "");
    o.vocab_size = INT32_MAX;
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "token 1 is id 4294967295", "");
    write_shard("s.bin", 20240520, 1, 6, tokens, 5, 2);
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "s.bin", "says 6 tokens");
    write_shard("s.bin", 20240520, 1, INT32_MAX, tokens, 5, 2);
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "s.bin", "says 2147483647 tokens");

    /* A tokenizer with more ids than the model: allowed while the text does not use them. */
    dsmoe_tokenizer *released;
    assert_int_equal(dsmoe_tokenizer_open(TEST_DATA "/tokenizer", &released, NULL), DSMOE_OK);
    write_text("one.txt", "a");
    write_text("two.txt", "b Tokenizer");
    const char *const paths[] = {in_directory("one.txt"), in_directory("two.txt")};
    o = options_for("one.txt");
    o.paths = paths;
    o.n_paths = 2;
    o.tokenizer = released;
    o.vocab_size = 100002;
    o.sequence_length = 2;
    dsmoe_dataset_free(open_data(&o));
    assert_int_equal(remove(in_directory("data.cache")), 0);
    write_text("two.txt", "b \xc3\xb6"); /* this letter's id is too large */
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "two.txt: token 3 is id 100003", "another model");
    assert_false(exists("data.cache"));
    dsmoe_tokenizer_free(released);
}

/* A cache without its text is used if it has the expected hash. */
static void test_cache_alone(void **state)
{
    (void)state;
    write_text("t.txt", "some text that is long enough to hold out a part of it");
    dsmoe_dataset_options o = options_for("t.txt");
    o.held_out = 0.2;
    dsmoe_dataset *data = open_data(&o);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    dsmoe_dataset_free(data);
    o.expected_hash = info.hash;
    write_text("t.txt", "another text");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "t.txt: the text has changed", "data.cache");
    o.n_paths = 0;
    o.paths = NULL;
    data = open_data(&o);
    dsmoe_dataset_info again = dsmoe_dataset_get_info(data);
    assert_true(again.hash == info.hash && !again.cache_built && again.n_train == info.n_train);
    assert_int_equal(dsmoe_dataset_files(data)->n_files, 0);
    dsmoe_dataset_free(data);
    o.expected_hash++;
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "data.cache", "have changed since");
    o.expected_hash = 0;
    o.held_out = 0.1;
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "data.cache", "a held_out of 0.2, not 0.1");
    o.held_out = 0.2;
    o.vocab_size = 300;
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "data.cache", "a vocab_size of 267, not 300");
    assert_int_equal(remove(in_directory("data.cache")), 0);
    assert_data_refused(&o, DSMOE_ERROR_IO, "data.cache", "cannot open");
}

static void test_broken_lines(void **state)
{
    (void)state;
    write_text("t.jsonl", "{\"text\":\"a\"}\n{\"text\":\n");
    dsmoe_dataset_options o = options_for("t.jsonl");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "t.jsonl: line 2: ", "bad JSON");
    assert_false(exists("data.cache"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)
    const struct CMUnitTest tests[] = {
        TEST(test_documents_become_tokens),
        TEST(test_wide_tokens),
        cmocka_unit_test(test_where_texts_are_cut),
        TEST(test_long_texts),
        TEST(test_long_texts_released),
        TEST(test_many_documents),
        cmocka_unit_test(test_orders_are_permutations),
        cmocka_unit_test(test_orders_are_even),
        TEST(test_epochs),
        TEST(test_seeds),
        TEST(test_shares),
        TEST(test_numbers_out_of_range),
        TEST(test_kinds),
        TEST(test_bad_options),
        TEST(test_too_little),
        TEST(test_bad_tokens),
        TEST(test_broken_lines),
        TEST(test_cache_alone),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}
